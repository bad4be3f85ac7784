// The layer with gradients: fused kernels forward and backward; higher orders by the composite
// form.
#pragma once

#include "qna/ops/layer.h"

namespace qna::ops {

at::Tensor layer_with_gradient(const at::Tensor& x, const LayerParameters& parameters,
                               const OptionalTensor& mask, const WindowGeometry& geometry,
                               int64_t upsample, const LayerBranch* branch = nullptr);

// The fused forward pass on checked arguments, for a dtype that has a kernel. `kept`, if defined,
// gets the values and scores in float32: [B, H, W, (dim, heads) and (L, heads)]. A branch must be
// float32.
at::Tensor layer_fused(const at::Tensor& x, const LayerParameters& parameters,
                       const OptionalTensor& mask, const kernels::WindowShape& shape,
                       int64_t upsample, const at::Tensor& kept = {},
                       const LayerBranch* branch = nullptr);

}  // namespace qna::ops
