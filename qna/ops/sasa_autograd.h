// First-order gradients by the fused kernels; higher orders by the composite form.
#pragma once

#include "qna/ops/geometry.h"

namespace qna::ops {

at::Tensor sasa_with_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const OptionalTensor& bias, const OptionalTensor& mask,
                              const WindowGeometry& geometry);

}  // namespace qna::ops
