// The training loop: one task, one recipe, one folder.
//
// The folder holds
//   recipe.toml        what was run, as it was run
//   last.safetensors   where it is: predicts, and goes on with resume
//   best.safetensors   where the first metric was best
//   log.jsonl          a line per some steps, and one per epoch
//   events.out...      the same for TensorBoard
//   report.html        after evaluations and at the end
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "qna/recipe/recipe.h"
#include "qna/tasks/task.h"
#include "qna/train/processes.h"
#include "qna/train/run_state.h"

namespace qna::train {

inline constexpr const char* kBestFile = "best.safetensors";  // in the folder

// Of this recipe's epochs: those of all images, or recipe.steps_per_epoch.
int64_t steps_of_epoch(const Recipe& recipe, const tasks::Task& task);

struct TrainOptions {
  std::string folder;
  bool resume = false;  // go on with the run in the folder, if there is one
  // Called where the run can be looked at, after an evaluation or when it is stopped, while the
  // model has the weights to be shown; evaluated: whether there was an evaluation in this session.
  std::function<void(const RunState& state, bool evaluated)> report = {};
};

// What there is to see after a step, or while an evaluation runs.
struct StepInfo {
  int64_t epoch = 0;  // this one
  int64_t epochs = 0;
  int64_t step = 0;  // done in the whole run
  int64_t steps = 0;
  double loss = 0;       // of this step
  double mean_loss = 0;  // of the epoch so far
  double lr = 0;
  double gradient_norm = 0;
  double images_per_second = 0;  // lately
  bool skipped = false;          // loss or gradient were not finite
};

struct EpochInfo {
  int64_t epoch = 0;  // that is done, from 0
  int64_t epochs = 0;
  double train_loss = 0;
  double seconds = 0;      // of training so far
  tasks::Metrics metrics;  // empty where this epoch was not evaluated
  bool best = false;
};

// A run that is about to begin.
struct RunInfo {
  std::vector<std::string> about;  // lines about model and data, for people
  int64_t epochs = 0;
  int64_t steps_per_epoch = 0;
  int processes = 1;
  int threads = 1;  // of each
};

// Calls for those who watch. The library itself prints nothing.
struct Watcher {
  std::function<void(const RunInfo&)> start = [](const RunInfo&) {};
  std::function<void(const std::string&)> note = [](const std::string&) {};
  std::function<void(const StepInfo&)> step = [](const StepInfo&) {};
  std::function<void(int64_t done, int64_t total)> evaluation = [](int64_t, int64_t) {};
  std::function<void(const EpochInfo&)> epoch = [](const EpochInfo&) {};
};

struct TrainResult {
  bool finished = false;  // false: stopped by `stop`; the checkpoint is written
  RunState state;
};

// After a finished run the model holds the weights that were evaluated last, the running mean where
// there is one. stop: set from elsewhere, such as a signal handler; the run then saves after the
// current step and returns. Throws qna::Error for a folder that has a run already (without resume),
// when too many steps had to be skipped, and for all that goes wrong with files and processes.
TrainResult train(tasks::Task& task, const Recipe& recipe, const Processes& processes,
                  const TrainOptions& options, const Watcher& watcher,
                  const std::atomic<bool>& stop);

}  // namespace qna::train
