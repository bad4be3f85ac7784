// Runs what is left of sweeps, each run as a program of its own.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "qna/sweep/known.h"
#include "qna/sweep/table.h"

namespace qna::sweep {

struct RunOptions {
  Programs programs;
  int parallel = 1;      // runs at a time
  KnownRuns known = {};  // that need not be made again
};

// Calls for those who watch. The library itself prints nothing.
struct Watcher {
  // Now and then while runs are under way: how many of what was left are done, and what
  // runs now.
  std::function<void(int64_t done, int64_t total, const std::string& now)> progress =
      [](int64_t, int64_t, const std::string&) {};
  std::function<void(const Sweep&, const Run&, const RunResult&)> finished =
      [](const Sweep&, const Run&, const RunResult&) {};
  std::function<void(const Sweep&, const Run&, const std::string& why)> failed =
      [](const Sweep&, const Run&, const std::string&) {};
};

// A sweep with its plans and its folder.
struct Job {
  const Sweep* sweep;
  std::vector<RowPlan> plans;
  std::string folder;
};

struct Outcome {
  int64_t failed = 0;
  bool stopped = false;
};

// Writes the results that are known in the place of runs that have not been made.
void take_known(const Job& job, const KnownRuns& known);

// In the order of the jobs; runs that are finished stay as they are, half-done ones go on. What two
// sweeps have in common is run once. Tables
// and pages are written anew after each run. A run that fails is told and the others go on. stop:
// set from elsewhere; the runs then save and end. Throws qna::Error where another sweep is at work
// in a folder.
Outcome run_sweeps(const std::vector<Job>& jobs, RunOptions options, const Watcher& watcher,
                   const std::atomic<bool>& stop);

}  // namespace qna::sweep
