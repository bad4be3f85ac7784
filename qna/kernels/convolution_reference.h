// Windows, for the references.
#pragma once

#include "qna/kernels/convolution.h"

namespace qna::kernels {

// use(tap, pixel) for each tap of a window that lies inside the map.
template <typename Use>
void for_each_tap(const ConvolutionShape& s, int64_t window, const Use& use) {
  const int64_t image = window / (s.out_height * s.out_width);
  const int64_t top = window / s.out_width % s.out_height * s.stride_h - s.pad_top;
  const int64_t left = window % s.out_width * s.stride_w - s.pad_left;
  for (int64_t i = 0; i < s.kernel_h; ++i)
    for (int64_t j = 0; j < s.kernel_w; ++j) {
      const int64_t y = top + i * s.dilation_h;
      const int64_t x = left + j * s.dilation_w;
      if (y < 0 || y >= s.height || x < 0 || x >= s.width) continue;
      use(i * s.kernel_w + j, (image * s.height + y) * s.width + x);
    }
}

}  // namespace qna::kernels
