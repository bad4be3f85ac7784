// A training run as data: what, on what, how, and what is to be expected.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qna/format/fields.h"
#include "qna/recipe/schedule.h"

namespace qna::train {

// Parameters whose name fits a pattern such as "*.bias" (fnmatch) have other settings. A parameter
// belongs to the first group it fits; a pattern that fits no parameter stops the run.
struct ParameterGroup {
  std::string match;
  double lr_scale = 1;
  double weight_decay = -1;  // below 0: that of all
};

struct Optimizer {  // AdamW
  double lr = 5e-4;
  double lr_batch = 256;  // the rate is lr * batch / lr_batch; 0: lr itself
  double weight_decay = 0.05;
  std::array<double, 2> betas = {0.9, 0.999};
  double epsilon = 1e-8;
  // The rate of a parameter times this for every stage between it and the head; 1: no difference.
  double depth_decay = 1;
  std::vector<ParameterGroup> groups = {};
};

enum class Precision { kFloat32, kBFloat16 };

struct Recipe {
  struct About {
    std::string what;     // model and data, in a line
    std::string command;  // how to run it
    std::string budget;   // on what machine, for how long
    std::string expect;   // what comes out
  } about;
  std::string task = "classification";
  int64_t seed = 0;
  int64_t epochs = 300;
  int64_t batch = 1024;    // images per step, of all processes together
  int64_t accumulate = 1;  // parts that a step's images are computed in, one after the other
  double clip = 0;         // largest norm of all gradients; 0: none
  Precision precision = Precision::kFloat32;
  double ema = 0;               // decay of the running mean of weights; 0: none
  bool ema_warmup = true;       // less decay in the first steps, see train/ema.h
  int64_t max_bad_steps = 20;   // skipped for a loss or gradient that is not finite, at most
  int64_t evaluate_every = 1;   // epochs
  int64_t patience = 0;         // epochs without a better first metric that end the run; 0: never
  int64_t freeze_epochs = 0;    // at the beginning, in which only the head learns
  int64_t steps_per_epoch = 0;  // an epoch has no more than these; 0: all images
  double checkpoint_minutes = 10;  // between checkpoints inside an epoch; 0: none
  int64_t checkpoint_steps = 0;    // the same in steps
  Optimizer optimizer;
  Schedule schedule;
  nlohmann::json sections = nlohmann::json::object();  // what belongs to the task: model, data ...

  double full_lr() const {
    return optimizer.lr_batch > 0 ? optimizer.lr * static_cast<double>(batch) / optimizer.lr_batch
                                  : optimizer.lr;
  }
};

// Throws qna::Error that names the key, the rule and the value. Keys that the recipe itself does
// not know go into `sections`: the task refuses those that it does not know.
Recipe recipe_from_json(const nlohmann::json& json);
nlohmann::json to_json(const Recipe& recipe);

// A TOML or JSON file. extends = "other.toml" takes from the file of that name beside it what is
// not given here. Relative paths of data and weights are those of files beside the recipe, if there
// are such, or else stay as they are. settings: "key.inner=value" with a TOML value; a text needs
// no quotes, and paths stay as they are.
Recipe read_recipe(const std::string& path, const std::vector<std::string>& settings = {});

// For who makes recipes of others. Puts a value at "section.key", making tables on the way; of a
// list, "stages.0.queries" is that of the first and "stages.*.queries" those of all.
void set_value(nlohmann::json& object, const std::string& key, const nlohmann::json& value);
// The same for many settings as read_recipe() takes them.
void change(nlohmann::json& object, const std::vector<std::string>& settings);
// Paths of data and weights that are files beside `file` become those.
void resolve_paths(nlohmann::json& object, const std::string& file);

// The same recipe with paths of data and weights that hold wherever it is run.
Recipe with_absolute_paths(Recipe recipe);

// For who reads `sections`: the sections of every recipe are named too in the message about one
// that nobody knows.
void name_common_sections(const format::Fields& sections);

// Of all that decides what comes out, wherever it is run: two recipes that have the same are one
// experiment. Files that it names count by what is in them, folders by their names.
std::string fingerprint(const Recipe& recipe);

// The keys, as "section.key", in which two recipes differ in what decides the weights. Where the
// data lies, how many threads read it and how often a checkpoint is written do not.
std::vector<std::string> differences(const Recipe& a, const Recipe& b);

}  // namespace qna::train
