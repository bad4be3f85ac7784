// The shape of one window-attention problem. All maps are channels-last.
#pragma once

#include <cstdint>

namespace qna::kernels {

struct WindowShape {
  int64_t batch = 1;
  int64_t height = 1;
  int64_t width = 1;
  int64_t heads = 1;
  int64_t head_dim = 1;
  int64_t queries = 1;
  int64_t kernel_h = 3;
  int64_t kernel_w = 3;
  int64_t stride_h = 1;
  int64_t stride_w = 1;
  int64_t pad_top = 0;
  int64_t pad_bottom = 0;
  int64_t pad_left = 0;
  int64_t pad_right = 0;
  int64_t dilation_h = 1;
  int64_t dilation_w = 1;
  // false: the queries' weights are summed before the values are touched (the QnA layer).
  // true: every query has an output of its own (up-sampling).
  bool separate = false;

  // Input rows and columns from a window's first tap to its last.
  int64_t span_h() const { return (kernel_h - 1) * dilation_h + 1; }
  int64_t span_w() const { return (kernel_w - 1) * dilation_w + 1; }
  int64_t out_height() const { return (height + pad_top + pad_bottom - span_h()) / stride_h + 1; }
  int64_t out_width() const { return (width + pad_left + pad_right - span_w()) / stride_w + 1; }

  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t features() const { return heads * head_dim; }
  int64_t scores() const { return queries * heads; }
  // Outputs per window: 1, or one per query.
  int64_t outputs() const { return separate ? queries : 1; }
};

// Throws qna::Error, with `caller` in front, unless every field is in range, the window fits the
// padded map and no array of the problem has more than 2^48 elements.
void check_shape(const WindowShape& shape, const char* caller);

// Whether every pixel surely lies under some window (false for any dilation).
inline bool sees_every_pixel(const WindowShape& s) {
  return s.stride_h <= s.span_h() && s.dilation_h == 1 && s.stride_w <= s.span_w() &&
         s.dilation_w == 1 &&
         (s.out_height() - 1) * s.stride_h - s.pad_top + s.span_h() >= s.height &&
         (s.out_width() - 1) * s.stride_w - s.pad_left + s.span_w() >= s.width;
}

// The taps t in [0, kernel) for which start + t * dilation lies in [0, size): a range, perhaps
// empty.
struct TapRange {
  int64_t begin;
  int64_t end;
};

inline TapRange valid_taps(int64_t start, int64_t kernel, int64_t dilation, int64_t size) {
  const int64_t begin = start >= 0 ? 0 : (-start + dilation - 1) / dilation;
  const int64_t end = start >= size ? 0 : (size - 1 - start) / dilation + 1;
  return {begin, end < kernel ? (end > begin ? end : begin) : (kernel > begin ? kernel : begin)};
}

// The pixel under a tap of the window of output (row, column), or -1 where the tap takes no part.
inline int64_t pixel_under_tap(const WindowShape& s, const uint8_t* mask, int64_t image,
                               int64_t row, int64_t column, int64_t tap) {
  const int64_t y = row * s.stride_h - s.pad_top + tap / s.kernel_w * s.dilation_h;
  const int64_t x = column * s.stride_w - s.pad_left + tap % s.kernel_w * s.dilation_w;
  if (y < 0 || y >= s.height || x < 0 || x >= s.width) return -1;
  const int64_t n = (image * s.height + y) * s.width + x;
  return mask != nullptr && mask[n] == 0 ? -1 : n;
}

}  // namespace qna::kernels
