// LayerNorm where no product follows that could take its scale and shift (see dense.h).
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"

namespace qna::kernels {

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, of each row
struct LayerNormArgs {
  int64_t rows, features;
  float epsilon = 1e-6f;
  const float* weight;  // [features] or null: 1
  const float* bias;    // [features] or null: 0
  const float* x;       // [rows, features]
  float* y;             // like x; may be x
};

// The mean over the positions of LayerNorm(x). An image without positions gives 0.
struct NormMeanArgs {
  int64_t batch, positions, features;
  float epsilon = 1e-6f;
  const float* weight;            // [features] or null: 1
  const float* bias;              // [features] or null: 0
  const uint8_t* mask = nullptr;  // [B, positions], 0 does not count; or null
  const float* x;                 // [B, positions, features]
  float* y;                       // [B, features]
  bool normalize = true;          // false: the mean of x, times weight plus bias
};

void layer_norm_reference(const LayerNormArgs& args, Runtime& runtime);
void norm_mean_reference(const NormMeanArgs& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h).
void layer_norm(const LayerNormArgs& args, Runtime& runtime);
void norm_mean(const NormMeanArgs& args, Runtime& runtime);

}  // namespace qna::kernels
