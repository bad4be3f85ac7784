// Several runs on one page.
#pragma once

#include <string>
#include <vector>

#include "qna/report/training_report.h"

namespace qna::report {

// The log of a run, JSON lines, in its folder.
std::string run_log_path(const std::string& folder);

// What to call runs: by their folders' names, with the folder around where two have one name.
std::vector<std::string> run_names(const std::vector<std::string>& folders);

// For every metric of the runs' logs one chart with a curve per run, against epochs from 1 on, and
// a line for each run that says where it ended. Throws qna::Error for a folder without a log.
TrainingReport compare_runs(const std::vector<std::string>& folders);

}  // namespace qna::report
