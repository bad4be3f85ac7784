// The task of a recipe in a process; for the files of this folder.
#pragma once

#include <memory>

#include "qna/recipe/recipe.h"
#include "qna/tasks/task.h"
#include "qna/train/processes.h"

namespace qna::train {

// wanted: threads that compute; 0: the machine's, shared among its processes.
void set_threads(int wanted, const Rank& rank);

// From the seed on: whatever was computed before in this process does not matter.
std::unique_ptr<tasks::Task> make_recipe_task(const Recipe& recipe, const Processes& processes);

}  // namespace qna::train
