// y = activation((x - mean) / sqrt(variance + epsilon) * weight + bias), mean and (biased) variance
// of each image and feature over the positions.
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"
#include "qna/kernels/dense.h"

namespace qna::kernels {

struct InstanceNormArgs {
  int64_t batch, positions, features;
  float epsilon = 1e-5f;
  const float* weight;  // [features] or null: 1
  const float* bias;    // [features] or null: 0
  Activation activation = Activation::kNone;
  const float* x;  // [B, positions, features]
  float* y;        // like x; may be x
};

void instance_norm_reference(const InstanceNormArgs& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h).
void instance_norm(const InstanceNormArgs& args, Runtime& runtime);

}  // namespace qna::kernels
