#include "qna/data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace qna::data {
namespace {

TEST(Permutation, HasEachOnce) {
  for (const int64_t count : {0, 1, 2, 3, 100, 1001}) {
    Random random(5);
    std::vector<int64_t> order = permutation(count, random);
    std::sort(order.begin(), order.end());
    ASSERT_EQ(static_cast<int64_t>(order.size()), count);
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(order[i], i);
  }
}

TEST(Permutation, EachOrderIsEquallyLikely) {
  std::map<std::vector<int64_t>, int> seen;
  Random random(1);
  const int times = 24000;
  for (int i = 0; i < times; ++i) ++seen[permutation(4, random)];
  EXPECT_EQ(seen.size(), 24u);
  // 1000 each; the standard deviation is 31, so 6 of them are next to impossible by chance.
  for (const auto& [order, count] : seen) EXPECT_NEAR(count, 1000, 186);
}

TEST(ShareOf, SharesAreTheBatch) {
  for (const bool paired : {false, true})
    for (int64_t ranks = 1; ranks <= 7; ++ranks)
      for (int64_t count = 0; count <= 40; ++count) {
        int64_t end = 0;
        int64_t largest = 0;
        int64_t smallest = count;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const Share share = share_of(count, rank, ranks, paired);
          EXPECT_EQ(share.first, end);
          EXPECT_LE(share.first, share.end);
          EXPECT_TRUE(!paired || share.first == count || share.first % 2 == 0);
          end = share.end;
          largest = std::max(largest, share.end - share.first);
          smallest = std::min(smallest, share.end - share.first);
        }
        EXPECT_EQ(end, count);
        // As fair as whole images or pairs allow; the pair of one makes 3.
        EXPECT_LE(largest - smallest, paired ? 3 : 1) << count << " among " << ranks;
        EXPECT_TRUE(count % (2 * ranks) != 0 || largest == smallest);
      }
}

}  // namespace
}  // namespace qna::data
