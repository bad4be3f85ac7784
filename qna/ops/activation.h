// The kernels' activations as differentiable operators.
#pragma once

#include <ATen/ATen.h>

#include "qna/kernels/dense.h"

namespace qna::ops {

at::Tensor activate(const at::Tensor& x, kernels::Activation activation);

}  // namespace qna::ops
