// From what was found in a data set to the recipe of a run that fits into some minutes. Pure
// functions: the same survey, speed and minutes give the same recipe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qna/engine/model_file.h"
#include "qna/finetune/survey.h"

namespace qna::finetune {

// What the network is and starts from.
struct Start {
  std::string file;             // a classifier's weights, or a detector's; gives the network
  bool random_weights = false;  // only the network, not its weights
};

// Of this machine with the draft's network, in images per second.
struct Speed {
  double train = 0;
  double first = 0;  // of training in the first epoch, which reads the images; 0: as later
  double evaluate = 0;
  double first_evaluate = 0;  // of the first evaluation; 0: as later
  int64_t size = 0;           // of a classifier's pictures when it was measured; 0: the draft's
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
// and larger where many would; a speed that has a size decides that. Where not even one epoch fits,
// it has fewer steps. A draft that has `epochs` keeps them.
Plan fit_to_time(const Plan& draft, const Survey& survey, const Speed& speed, double seconds);

}  // namespace qna::finetune
