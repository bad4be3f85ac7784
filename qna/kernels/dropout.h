// Dropout's factors.
#pragma once

#include <cstdint>

namespace qna::kernels {

// Numbers are decided on in groups of so many, each group by one draw of 64 bits.
inline constexpr int64_t kDropoutGroup = 4;

struct DropoutArgs {
  float* factors;  // [count]: 0, or what keeps the expected value
  int64_t count;
  double rate;  // share of zeros, to 1 / 65536
  uint64_t seed;
};

// The factors of the groups first .. end - 1; which thread makes them changes nothing.
void dropout_factors(const DropoutArgs& args, int64_t first, int64_t end);

}  // namespace qna::kernels
