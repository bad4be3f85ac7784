// Which taps of a window lie inside the map.
#pragma once

#include <algorithm>
#include <cstdint>

namespace qna::kernels {

// Taps [first, end) along one axis; empty if end <= first.
struct TapRange {
  int64_t first, end;
  bool holds(int64_t tap) const { return first <= tap && tap < end; }
  int64_t count() const { return std::max<int64_t>(0, end - first); }
};

// Of a window whose first tap is at `start`.
inline TapRange taps_inside(int64_t start, int64_t taps, int64_t dilation, int64_t size) {
  const int64_t first = start >= 0 ? 0 : (-start + dilation - 1) / dilation;
  const int64_t end = start >= size ? 0 : (size - start - 1) / dilation + 1;
  return {std::min(first, taps), std::min(end, taps)};
}

}  // namespace qna::kernels
