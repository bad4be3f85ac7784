// Tasks by the kind of network that they train.
#pragma once

#include <memory>

#include "qna/config/network.h"
#include "qna/report/training_report.h"
#include "qna/tasks/task.h"

namespace qna::tasks {

// sections: the recipe's tables of model and data.
std::unique_ptr<Task> make_task(config::Kind kind, const nlohmann::json& sections, const Run& run);

// Images and charts of the last evaluate(); `task` must be one of that kind.
void add_to_report(report::TrainingReport& report, config::Kind kind, const Task& task,
                   int threads);

}  // namespace qna::tasks
