// What a sweep will cost, said before it is run.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "qna/sweep/result.h"
#include "qna/sweep/sweep.h"

namespace qna::sweep {

// Of every row.
struct RowPlan {
  int64_t parameters = 0;
  double gflops = 0;       // of one image forward; 2 per multiply-add
  double images = 0;       // that a run sees in training
  double seconds = kNone;  // of a run, by estimate() or by those that are finished
};

// Opens the data of every row: a row that cannot be trained is found here. Throws qna::Error that
// names the row.
std::vector<RowPlan> plan(const Sweep& sweep);

// How programs are started.
struct Programs {
  std::string qna;  // path of the program
  int threads = 1;  // of each run
};

// Trains the first row for a few steps to see how fast this machine is, and keeps the answer in the
// sweep's folder. Images per second; not a number where it was stopped or failed.
double measure_speed(const Sweep& sweep, const std::string& folder, const Programs& programs,
                     const std::atomic<bool>& stop);

// Fills in the seconds: those of a row's finished runs, or else by images and GFLOPs from rows that
// have finished ones, or else from the speed of the first row. Validation is not counted.
void estimate(std::vector<RowPlan>& plans, const std::vector<RowResult>& results, double speed);

// Of all runs that are not finished, when `parallel` of them run at a time.
double seconds_left(const Sweep& sweep, const std::vector<RowPlan>& plans,
                    const std::vector<RunResult>& results, int parallel);

}  // namespace qna::sweep
