// What the tasks' loaders have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qna/base/error.h"
#include "qna/data/loader_options.h"
#include "qna/recipe/reading_options.h"
#include "qna/tasks/task.h"

namespace qna::tasks {

data::LoaderOptions loader_options(const ReadingOptions& options, const Run& run, bool training);

// The loader's next batch in the place of `batch`. Returns how many images it has in all processes
// together.
template <typename Loader, typename Batch>
int64_t go_on(Loader& loader, Batch& batch) {
  loader.recycle(std::move(batch));
  std::optional<Batch> next = loader.next();
  check(next.has_value(), "task: there is no further batch in this epoch");
  batch = std::move(*next);
  return batch.total;
}

template <typename Loader>
std::vector<std::string> broken_in(const Loader& train, const Loader& val) {
  std::vector<std::string> all = train.broken();
  for (const std::string& line : val.broken()) all.push_back(line);
  return all;
}

}  // namespace qna::tasks
