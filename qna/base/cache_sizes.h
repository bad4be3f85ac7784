// How large the caches of a core are, as the system says; what a usual core has where it does not.
#pragma once

#include <cstdint>

namespace qna {

struct CacheSizes {
  int64_t first;   // bytes of the first level, for data
  int64_t second;  // of the second
};

const CacheSizes& cache_sizes();

}  // namespace qna
