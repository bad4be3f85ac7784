#include "qna/tasks/reading_options.h"

#include "qna/base/error.h"

namespace qna::tasks {
namespace {
constexpr format::EnumName<bool> kBroken[] = {{false, "stop"}, {true, "skip"}};
}

void read_reading(const format::Fields& fields, ReadingOptions& options) {
  fields("workers", options.workers);
  fields("cache_mb", options.cache_mb);
  fields.choose("broken", options.skip_broken, kBroken);
  check(options.workers >= 0 && options.workers <= 1024,
        "recipe: data.workers must be from 0 to 1024, got {}", options.workers);
  check(options.cache_mb >= 0 && options.cache_mb <= (1 << 24),
        "recipe: data.cache_mb must be from 0 to {}, got {}", 1 << 24, options.cache_mb);
}

data::LoaderOptions loader_options(const ReadingOptions& options, const Run& run, bool training) {
  return {.batch = run.batch,
          .workers = static_cast<int>(options.workers > 0 ? options.workers : run.threads),
          .seed = static_cast<uint64_t>(run.seed),
          .shuffle = training,
          .rank = run.rank,
          .ranks = run.ranks,
          .skip_broken = options.skip_broken,
          .cache_bytes = static_cast<size_t>(options.cache_mb) << 20};
}

}  // namespace qna::tasks
