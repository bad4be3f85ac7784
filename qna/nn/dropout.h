// Dropout whose random numbers all threads draw.
#pragma once

#include <torch/types.h>

namespace qna::nn {

// Zeroes each number with probability `rate`, in steps of 2^-16, and divides the others by the
// probability that they stay. Not in training, or with rate 0: x itself. LibTorch's seed decides;
// the number of threads does not matter. (at::dropout draws one number after the other in one
// thread, which was a tenth of a step of DETR.)
torch::Tensor dropout(const torch::Tensor& x, double rate, bool training);

}  // namespace qna::nn
