// From what was found in a data set to the recipe of a run that fits into some minutes. Pure
// functions: the same survey, speed and minutes give the same recipe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qna/engine/model_file.h"
#include "qna/finetune/survey.h"
#include "qna/recipe/speed.h"

namespace qna::finetune {

// What the network is and starts from.
struct Start {
  std::string file;             // a classifier's weights, or a detector's; gives the network
  bool random_weights = false;  // only the network, not its weights
};

// A line of the plan for people.
struct Choice {
  std::string what;   // "rate"
  std::string value;  // "0.001"
  std::string why;
};

struct Plan {
  nlohmann::json recipe = nlohmann::json::object();
  bool keeps_size = false;  // of the images, whatever the time
  std::vector<Choice> choices = {};
};

// Everything but how long: network, sizes, batch, rates, augmentation. Throws qna::Error for
// weights that do not suit the data.
Plan draft_plan(const Survey& survey, const Start& start);

// Adds epochs, evaluations, head first and patience, so that training and evaluations take about so
// many seconds at that speed. Where few epochs would fit, a classifier's pictures become smaller,
// and larger where many would, unless the speed was measured at `size` of them (0: the draft's).
// Where not even one epoch fits, it has fewer steps. A draft that has `epochs` keeps them.
Plan fit_to_time(const Plan& draft, const Survey& survey, const train::Speed& speed, double seconds,
                 int64_t measured_size = 0);

}  // namespace qna::finetune
