// A convolution of each feature by itself:
//   y[c] = activation(sum over the taps of weight[tap][c] x[tap][c] + bias[c])
// Taps that lie outside the map read 0.
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"
#include "qna/kernels/convolution.h"

namespace qna::kernels {

struct DepthwiseArgs {
  ConvolutionShape shape;
  const float* x;                             // [B, H, W, features]
  const float* weight;                        // [taps, features]
  const float* bias = nullptr;                // [features] or null
  Activation activation = Activation::kNone;  // none, kRelu or kRelu6
  float* y;                                   // [B, OH, OW, features]
};

void depthwise_reference(const DepthwiseArgs& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h).
void depthwise(const DepthwiseArgs& args, Runtime& runtime);

}  // namespace qna::kernels
