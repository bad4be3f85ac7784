// Stochastic depth: in training a branch is dropped for some of the images of a batch.
#pragma once

#include <torch/types.h>

namespace qna::nn {

// Zeroes x [B, ...] for each image with probability `rate` and divides the others by 1 - rate, so
// that the expected value stays. Not in training, or with rate 0: x itself.
torch::Tensor drop_path(const torch::Tensor& x, double rate, bool training);

// The factors that drop_path multiplies the images of x by: [B]. Undefined where it does nothing.
torch::Tensor drop_path_factors(const torch::Tensor& x, double rate, bool training);

}  // namespace qna::nn
