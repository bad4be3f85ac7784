// The largest value and the mean of each feature over a window.
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"
#include "qna/kernels/convolution.h"

namespace qna::kernels {

struct PoolArgs {
  ConvolutionShape shape;
  const float* x;                 // [B, H, W, features]
  const uint8_t* mask = nullptr;  // [B, H, W], 0 takes no part (max only); or null
  float* y;                       // [B, OH, OW, features]
};

// Taps outside the map or masked take no part; a window with none gives 0, one with a NaN NaN.
void max_pool_reference(const PoolArgs& args, Runtime& runtime);
// The sum over the taps inside the map, divided by the number of all taps.
void average_pool_reference(const PoolArgs& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h).
void max_pool(const PoolArgs& args, Runtime& runtime);
void average_pool(const PoolArgs& args, Runtime& runtime);

}  // namespace qna::kernels
