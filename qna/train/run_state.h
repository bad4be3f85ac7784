// A run on disk: where it is, and all that it needs to go on to the same weights, bit by bit.
//
// A checkpoint is a model file (checkpoint/model_file.h) that predicts as it is. Beside the model
// it holds tensors under "training/": the optimiser's, and, where the model's are the running mean,
// the weights themselves. Random numbers need no state: they are functions of the seed and of the
// position.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "qna/recipe/recipe.h"
#include "qna/tasks/task.h"
#include "qna/train/adamw.h"
#include "qna/train/ema.h"

namespace qna::train {

struct RunState {
  int64_t epoch = 0;  // the next batch is batch `batch` of epoch `epoch`
  int64_t batch = 0;
  int64_t step = 0;                           // batches so far, skipped ones too
  int64_t bad_steps = 0;                      // of them, skipped
  double loss_sum = 0;                        // of this epoch's images
  int64_t images = 0;                         // of this epoch so far
  double seconds = 0;                         // of training so far, in all sessions
  std::optional<double> best = std::nullopt;  // the first metric's
  int64_t best_epoch = -1;
  nlohmann::json metrics = nlohmann::json::object();  // of the last evaluation
  int64_t epochs_before = 0;  // of the recipe that load_run() found; not in files
};

nlohmann::json to_json(const RunState& state);

// Whether all epochs are done, or the recipe's patience is at its end.
bool is_finished(const RunState& state, const Recipe& recipe);

// The file is whole or as it was before.
void save_run(const std::string& path, tasks::Task& task, const Recipe& recipe,
              const RunState& state, const AdamW& optimizer, Ema& ema);

// Whether the run in this file has done a step; true where the file cannot be read.
bool has_begun(const std::string& path);

// Throws qna::Error where the file is broken, is none of a run, or is of a recipe that differs in
// what decides the weights; it may have fewer epochs.
RunState load_run(const std::string& path, tasks::Task& task, const Recipe& recipe,
                  AdamW& optimizer, Ema& ema);

}  // namespace qna::train
