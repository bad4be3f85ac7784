// The activations of kernels/dense.h on tensors.
#pragma once

#include <torch/types.h>

#include "qna/kernels/dense.h"

namespace qna::nn {

torch::Tensor activate(const torch::Tensor& x, kernels::Activation activation);

}  // namespace qna::nn
