#include "qna/kernels/dropout.h"

#include <algorithm>
#include <cmath>

#include "qna/base/random.h"

namespace qna::kernels {

void dropout_factors(const DropoutArgs& args, int64_t first, int64_t end) {
  constexpr double kSteps = 65536;  // decisions of 16 bits
  const auto limit = static_cast<uint64_t>(std::llround(args.rate * kSteps));
  const auto factor =
      static_cast<float>(kSteps / std::max(1.0, kSteps - static_cast<double>(limit)));
  // Where the stream of the seed stands before its number `first`.
  uint64_t state = args.seed + static_cast<uint64_t>(first - 1) * kSplitMixStep;
  for (int64_t i = first; i < end; ++i) {
    const uint64_t bits = split_mix(state);
    const int64_t n = std::min(kDropoutGroup, args.count - i * kDropoutGroup);
    for (int64_t j = 0; j < n; ++j) {
      args.factors[i * kDropoutGroup + j] = (bits >> (16 * j) & 0xffff) < limit ? 0 : factor;
    }
  }
}

}  // namespace qna::kernels
