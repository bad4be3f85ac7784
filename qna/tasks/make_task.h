// The kinds of tasks, by the name that a recipe gives them.
#pragma once

#include <memory>
#include <string>

#include "qna/tasks/task.h"

namespace qna::tasks {

// name: the recipe's `task`; sections: its tables of model and data. Throws qna::Error that lists
// the names where there is no such task.
std::unique_ptr<Task> make_task(const std::string& name, const nlohmann::json& sections,
                                const Run& run);

}  // namespace qna::tasks
