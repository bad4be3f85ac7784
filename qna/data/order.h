// Which images a batch has, and which of them a process takes.
#pragma once

#include <cstdint>
#include <vector>

#include "qna/base/random.h"

namespace qna::data {

// 0 .. count - 1 in random order, each order equally likely: for i from the last down to 1,
// place i is swapped with place random.below(i + 1).
std::vector<int64_t> permutation(int64_t count, Random& random);

// [first, end) of a batch.
struct Share {
  int64_t first;
  int64_t end;
};

// What process `rank` of `ranks` takes of a batch of `count`: all shares together are the batch.
// Share r begins at count * r / ranks, rounded down. `paired`: neighbours 2i and 2i + 1 stay
// together, so it begins at 2 * (pairs * r / ranks), which is the same where the batch divides by
// 2 * ranks. A share may be empty.
Share share_of(int64_t count, int64_t rank, int64_t ranks, bool paired);

}  // namespace qna::data
