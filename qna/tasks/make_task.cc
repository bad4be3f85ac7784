#include "qna/tasks/make_task.h"

#include "qna/base/error.h"
#include "qna/kinds/run_report.h"
#include "qna/tasks/auto_encoding.h"
#include "qna/tasks/classification.h"
#include "qna/tasks/detection.h"

namespace qna::tasks {
namespace {

template <typename T>
std::unique_ptr<Task> make(const nlohmann::json& sections, const Run& run) {
  return std::make_unique<T>(sections, run);
}

template <typename T>
void report_last(report::TrainingReport& report, const Task& task, engine::Context& context) {
  const T& own = static_cast<const T&>(task);
  if constexpr (requires { own.last_evaluation(); }) {
    kinds::add_to_report(report, own.serving_model(), own.last_evaluation(), own.val_set(),
                         context);
  } else {
    kinds::add_to_report(report, own.serving_model(), own.val_set(), context);
  }
}

struct TaskRow {
  config::Kind kind;
  std::unique_ptr<Task> (*make)(const nlohmann::json& sections, const Run& run);
  void (*report)(report::TrainingReport& report, const Task& task, engine::Context& context);
};

template <typename T>
constexpr TaskRow row(config::Kind kind) {
  return {kind, &make<T>, &report_last<T>};
}

constexpr TaskRow kTasks[] = {row<Classification>(config::Kind::kClassifier),
                              row<Detection>(config::Kind::kDetector),
                              row<AutoEncoding>(config::Kind::kAutoEncoder)};
static_assert(std::size(kTasks) == std::variant_size_v<config::NetworkConfig>);

const TaskRow& row_of(config::Kind kind) {
  for (const TaskRow& row : kTasks) {
    if (row.kind == kind) return row;
  }
  fail("there is no task that trains {}", config::describe(kind));
}

}  // namespace

std::unique_ptr<Task> make_task(config::Kind kind, const nlohmann::json& sections, const Run& run) {
  return row_of(kind).make(sections, run);
}

void add_to_report(report::TrainingReport& report, config::Kind kind, const Task& task,
                   int threads) {
  engine::Context context(threads);
  row_of(kind).report(report, task, context);
}

}  // namespace qna::tasks
