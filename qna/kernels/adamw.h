// AdamW's step (Loshchilov and Hutter 2019) with what else a training step does to every parameter:
// the norm of the gradients, clipping, and the running mean of the weights.
#pragma once

#include <cstdint>
#include <span>

#include "qna/base/runtime.h"

namespace qna::kernels {

// One parameter with its state, arrays of `count` numbers.
struct AdamWParameter {
  int64_t count;
  float* weight;
  const float* gradient;  // null: only the running mean moves
  float* mean;            // of gradients
  float* square_mean;
  float* average;  // running mean of the weights, or null
  double lr;       // of this parameter in this step
  double decay;    // of the weight: it loses lr * decay of itself
  int64_t step;    // from 1
};

struct AdamWArgs {
  std::span<const AdamWParameter> parameters;
  double betas[2];
  double epsilon;
  double gradient_factor = 1;  // of all gradients: clipping
  double average_decay = 0;    // average = average_decay * average + (1 - average_decay) * weight
};

// The sum of the squares of all gradients; infinity or NaN where one is not finite.
double gradient_square_sum_reference(std::span<const AdamWParameter> parameters, Runtime& runtime);
void adamw_reference(const AdamWArgs& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h).
double gradient_square_sum(std::span<const AdamWParameter> parameters, Runtime& runtime);
void adamw(const AdamWArgs& args, Runtime& runtime);

}  // namespace qna::kernels
