#include "qna/tasks/loading.h"

namespace qna::tasks {

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
