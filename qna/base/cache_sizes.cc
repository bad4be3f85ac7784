#include "qna/base/cache_sizes.h"

#include <unistd.h>

#include <algorithm>

namespace qna {
namespace {

// A size that no core has is a system that does not know.
[[maybe_unused]] int64_t cache_size(int name, int64_t usual, int64_t least, int64_t most) {
  const int64_t said = sysconf(name);
  return said < least ? usual : std::min(said, most);
}

}  // namespace

const CacheSizes& cache_sizes() {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  static const CacheSizes sizes = {
      cache_size(_SC_LEVEL1_DCACHE_SIZE, 32 << 10, 16 << 10, 128 << 10),
      cache_size(_SC_LEVEL2_CACHE_SIZE, 512 << 10, 256 << 10, 2 << 20)};
#else
  static const CacheSizes sizes = {32 << 10, 512 << 10};
#endif
  return sizes;
}

}  // namespace qna
