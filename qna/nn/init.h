// Initialisation as in JAX/Flax, which the authors used and LibTorch lacks.
#pragma once

#include <torch/types.h>

namespace qna::nn {

// Standard normal, cut off at -2 and 2, times stddev.
void truncated_normal_(torch::Tensor& tensor, double stddev);

// Truncated normal whose standard deviation, after the cut, is sqrt(1 / fan_in).
void lecun_normal_(torch::Tensor& tensor, int64_t fan_in);

}  // namespace qna::nn
