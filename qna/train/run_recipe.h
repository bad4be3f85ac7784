// A recipe, run: task, training loop and report in one call. The program `qna-train` parses, calls
// this and shows what its watcher is told.
#pragma once

#include <chrono>

#include "qna/train/trainer.h"

namespace qna::train {

struct RunOptions {
  std::string folder;   // of the run
  bool resume = false;  // go on with the run in the folder, if there is one
  int threads = 0;  // that compute in this process; 0: the machine's, shared among its processes
  std::chrono::milliseconds timeout =
      std::chrono::minutes(5);  // after which a silent process is dead
};

struct RunResult {
  bool finished = false;  // false: stopped; the run is saved
  bool first = true;      // whether this is the first process, which has the rest
  RunState state;
  std::string best_file;                 // weights
  std::string report = {};               // page
  std::vector<std::string> broken = {};  // images that were left out, a line each
};

// In this process, which is `rank` of several or the only one. Throws as train() does.
RunResult run_recipe(const Recipe& recipe, const RunOptions& options, const Rank& rank,
                     const Watcher& watcher, const std::atomic<bool>& stop);

}  // namespace qna::train
