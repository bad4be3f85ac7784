// First-order gradients by the fused kernels; higher orders by the composite form.
#pragma once

#include "qna/ops/geometry.h"

namespace qna::ops {

at::Tensor window_attention_with_gradient(const at::Tensor& scores, const at::Tensor& values,
                                          const OptionalTensor& bias,
                                          const OptionalTensor& tap_weights,
                                          const OptionalTensor& mask,
                                          const WindowGeometry& geometry, bool separate);

}  // namespace qna::ops
