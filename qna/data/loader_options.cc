#include "qna/data/loader_options.h"

#include "qna/base/error.h"

namespace qna::data {

void check_loader_options(const LoaderOptions& o, const char* where) {
  check(o.batch >= 1 && o.batch <= 1 << 20, "{}: batch must be in [1, {}], got {}", where, 1 << 20,
        o.batch);
  check(o.workers >= 1 && o.workers <= 1024, "{}: workers must be in [1, 1024], got {}", where,
        o.workers);
  check(o.ahead >= 1, "{}: ahead must be at least 1, got {}", where, o.ahead);
  check(o.ranks >= 1, "{}: ranks must be at least 1, got {}", where, o.ranks);
  check(o.rank >= 0 && o.rank < o.ranks, "{}: rank must be in [0, {}), got {}", where, o.ranks,
        o.rank);
}

}  // namespace qna::data
