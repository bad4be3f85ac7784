// A convolution with what stands before and behind it:
//   y = activation(norm(window(x)) W + b + residual)
// norm is over all values of a window, see dense.h. Taps that lie outside the map read 0.
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"
#include "qna/kernels/dense.h"

namespace qna::kernels {

// Window (i, j) begins at row i * stride_h - pad_top, column j * stride_w - pad_left.
struct ConvolutionShape {
  int64_t batch = 1, height = 1, width = 1;
  int64_t in_features = 1;
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_top = 0, pad_left = 0;
  int64_t dilation_h = 1, dilation_w = 1;
  int64_t out_height = 1, out_width = 1;  // any: what the window reaches beyond the map is 0

  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t pixels() const { return batch * height * width; }
  int64_t windows() const { return batch * out_height * out_width; }
};

// The residual comes before the activation, as in ResNet; in `dense` behind it.
struct ConvolutionArgs {
  ConvolutionShape shape;
  const float* x;  // [B, H, W, in]
  Norm norm = {};
  // By pack_matrix; inner = taps x in, by row of the window, column, feature.
  const PackedWeights* weights;
  Activation activation = Activation::kNone;
  const float* residual = nullptr;  // like y, or null; may be y
  float* y;                         // [B, OH, OW, columns of the weights]
};

void convolution_reference(const ConvolutionArgs& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h), which must be the one that
// packed the weights.
void convolution(const ConvolutionArgs& args, Runtime& runtime);

}  // namespace qna::kernels
