// A run of training in the terminal: what `qna train` and `qna finetune` have in common.
#pragma once

#include <optional>
#include <string>

#include "qna/train/run_recipe.h"

namespace qna::cli {

struct TrainingRun {
  const train::Recipe& recipe;
  train::RunOptions options;
  bool quiet = false;
  std::string go_on;  // the command that goes on with the run, for who stopped it
};

// Runs it with a bar and a line per epoch; Ctrl-C saves and leaves. Of the first process: prints
// what came out and where it lies, and returns it; of the others nothing. Throws qna::Error for a
// run that was stopped.
std::optional<train::RunResult> run_and_show(const TrainingRun& run, const train::Rank& rank);

// A word for a shell: as it is where that is safe.
std::string quoted(const std::string& word);

}  // namespace qna::cli
