// Which pixels of a row, with which weights, make each pixel of the resized row.
#pragma once

#include <cstdint>
#include <vector>

#include "qna/image/resize.h"

namespace qna::image {

// Weights are integers in units of 2^-22: a byte, a weight below 2 and a sign fill 32 bits.
inline constexpr int kWeightBits = 22;

struct ResizeWeights {
  struct Span {
    int64_t first;  // of the source
    int64_t count;
  };

  const int32_t* of(int64_t i) const { return weights.data() + i * stride; }
  int64_t first() const { return spans.front().first; }
  int64_t end() const { return spans.back().first + spans.back().count; }
  void shift(int64_t by) {
    for (Span& span : spans) span.first += by;
  }

  std::vector<Span> spans;       // [out]
  std::vector<int32_t> weights;  // [out, stride]
  int64_t stride;
};

// For `out` pixels from the part [from, to] of a row of `in`.
ResizeWeights resize_weights(int64_t in, double from, double to, int64_t out, Filter filter);

}  // namespace qna::image
