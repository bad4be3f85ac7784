// The layer with gradients: window attention by the fused kernels, the products by LibTorch.
#pragma once

#include "qna/ops/layer.h"

namespace qna::ops {

at::Tensor layer_with_gradient(const at::Tensor& x, const LayerParameters& parameters,
                               const OptionalTensor& mask, const WindowGeometry& geometry,
                               int64_t upsample);

}  // namespace qna::ops
