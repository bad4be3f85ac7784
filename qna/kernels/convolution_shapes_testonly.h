// The shapes that all operators with a ConvolutionShape are tested on: convolution, depthwise,
// pool.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "qna/base/error.h"
#include "qna/kernels/convolution.h"

namespace qna::kernels::testing {

inline std::string text(const ConvolutionShape& s) {
  return fmt::format(
      "[batch {}, {} x {} x {}, kernel {} x {}, stride {} x {}, pad {} {}, dilation {} x {}, out "
      "{} x {}]",
      s.batch, s.height, s.width, s.in_features, s.kernel_h, s.kernel_w, s.stride_h, s.stride_w,
      s.pad_top, s.pad_left, s.dilation_h, s.dilation_w, s.out_height, s.out_width);
}

// With as many windows as begin inside the map and its padding, which is the same on all sides.
inline ConvolutionShape with_out_size(ConvolutionShape s) {
  const auto count = [](int64_t size, int64_t pad, int64_t kernel, int64_t stride,
                        int64_t dilation) {
    const int64_t reach = (kernel - 1) * dilation + 1;
    return std::max<int64_t>(0, size + 2 * pad - reach) / stride + 1;
  };
  s.out_height = count(s.height, s.pad_top, s.kernel_h, s.stride_h, s.dilation_h);
  s.out_width = count(s.width, s.pad_left, s.kernel_w, s.stride_w, s.dilation_w);
  return s;
}

// A square window, padded so that it keeps the map's size if odd.
inline ConvolutionShape square_window(int64_t batch, int64_t height, int64_t width,
                                      int64_t in_features, int64_t kernel) {
  return with_out_size({.batch = batch,
                        .height = height,
                        .width = width,
                        .in_features = in_features,
                        .kernel_h = kernel,
                        .kernel_w = kernel,
                        .pad_top = kernel / 2,
                        .pad_left = kernel / 2});
}

// Strides, dilations, even windows, windows larger than the map, maps of one pixel, windows that
// see nothing of the map.
inline std::vector<ConvolutionShape> convolution_shapes(int64_t features) {
  std::vector<ConvolutionShape> shapes;
  struct Size {
    int64_t height, width;
  };
  int64_t round = 0;
  for (const Size map : {Size{1, 1}, {1, 6}, {5, 3}, {9, 14}})
    for (const Size kernel : {Size{1, 1}, {2, 2}, {3, 3}, {1, 4}, {5, 2}, {7, 7}})
      for (int64_t stride = 1; stride <= 3; ++stride)
        for (int64_t dilation = 1; dilation <= 2; ++dilation) {
          ConvolutionShape s{.batch = 1 + round % 3,
                             .height = map.height,
                             .width = map.width,
                             .in_features = features,
                             .kernel_h = kernel.height,
                             .kernel_w = kernel.width,
                             .stride_h = stride,
                             .stride_w = 1 + (stride + round) % 3,
                             .pad_top = round % 4 == 0 ? 0 : kernel.height / 2,
                             .pad_left = round % 5 == 0 ? kernel.width + 1 : kernel.width / 2,
                             .dilation_h = dilation,
                             .dilation_w = 1 + (dilation + round / 2) % 2};
          s = with_out_size(s);
          if (round % 7 == 0) s.out_height += 3, s.out_width += 2;  // windows beyond the map
          shapes.push_back(s);
          ++round;
        }
  return shapes;
}

}  // namespace qna::kernels::testing
