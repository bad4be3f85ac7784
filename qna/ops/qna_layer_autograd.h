// The layer with gradients: fused kernels forward and backward; higher orders by the composite
// form.
#pragma once

#include "qna/ops/qna_layer.h"

namespace qna::ops {

at::Tensor qna_layer_with_gradient(const at::Tensor& x, const QnALayerParameters& parameters,
                                   const OptionalTensor& mask, const WindowGeometry& geometry,
                                   int64_t upsample, const QnALayerBranch* branch = nullptr);

// The fused forward pass on checked arguments, for a dtype that has a kernel. `saved_map`, if
// defined, gets the values and scores in float32: [B, H, W, (dim, heads) and (L, heads)]. A branch
// must be float32.
at::Tensor qna_layer_fused(const at::Tensor& x, const QnALayerParameters& parameters,
                           const OptionalTensor& mask, const kernels::WindowShape& shape,
                           int64_t upsample, const at::Tensor& saved_map = {},
                           const QnALayerBranch* branch = nullptr);

}  // namespace qna::ops
