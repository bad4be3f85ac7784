#include "qna/tasks/make_task.h"

#include <fmt/ranges.h>

#include "qna/base/error.h"
#include "qna/tasks/auto_encoding.h"
#include "qna/tasks/classification.h"
#include "qna/tasks/detection.h"

namespace qna::tasks {
namespace {

template <typename Kind>
std::unique_ptr<Task> make(const nlohmann::json& sections, const Run& run) {
  return std::make_unique<Kind>(sections, run);
}

// A kind of task is a row.
constexpr struct {
  const char* name;
  std::unique_ptr<Task> (*make)(const nlohmann::json& sections, const Run& run);
} kTasks[] = {{"classification", &make<Classification>},
              {"detection", &make<Detection>},
              {"auto-encoding", &make<AutoEncoding>}};

}  // namespace

std::unique_ptr<Task> make_task(const std::string& name, const nlohmann::json& sections,
                                const Run& run) {
  std::vector<const char*> names;
  for (const auto& row : kTasks) {
    if (name == row.name) return row.make(sections, run);
    names.push_back(row.name);
  }
  fail("recipe: task must be one of {}, got '{}'", fmt::join(names, ", "), name);
}

}  // namespace qna::tasks
