#include "qna/data/order.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace qna::data {

std::vector<int64_t> permutation(int64_t count, Random& random) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = count - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  return order;
}

Share share_of(int64_t count, int64_t rank, int64_t ranks, bool paired) {
  const auto begin = [&](int64_t r) {
    if (!paired) return count * r / ranks;
    const int64_t pairs = (count + 1) / 2;  // the last of an odd count is a pair of one
    return std::min(count, 2 * (pairs * r / ranks));
  };
  return {begin(rank), begin(rank + 1)};
}

}  // namespace qna::data
