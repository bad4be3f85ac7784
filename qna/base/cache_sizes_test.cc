#include "qna/base/cache_sizes.h"

#include <gtest/gtest.h>

namespace qna {
namespace {

// Whatever the system says, or does not: sizes that a core can have.
TEST(CacheSizes, AreOfACore) {
  const CacheSizes& sizes = cache_sizes();
  EXPECT_GE(sizes.first, 16 << 10);
  EXPECT_LE(sizes.first, 128 << 10);
  EXPECT_GE(sizes.second, 256 << 10);
  EXPECT_LE(sizes.second, 2 << 20);
  EXPECT_GT(sizes.second, sizes.first);
  EXPECT_EQ(&cache_sizes(), &sizes);
}

}  // namespace
}  // namespace qna
