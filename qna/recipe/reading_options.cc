#include "qna/recipe/reading_options.h"

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

}  // namespace qna::tasks
