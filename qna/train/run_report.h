// The page of a run.
#pragma once

#include <string>

#include "qna/recipe/recipe.h"
#include "qna/tasks/task.h"
#include "qna/train/run_state.h"

namespace qna::train {

// folder/report.html: curves from the folder's log, and what the task shows of its last evaluation.
// evaluated: whether there was one. Returns the path.
std::string write_run_report(const std::string& folder, const tasks::Task& task,
                             const Recipe& recipe, const RunState& state, bool evaluated);

}  // namespace qna::train
