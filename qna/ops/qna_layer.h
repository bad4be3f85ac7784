// The operator qna::qna_layer: the whole QnA layer, x -> y.
#pragma once

#include "qna/ops/geometry.h"

namespace qna::ops {

// The layer's parameters in the form the operator takes them.
struct QnALayerParameters {
  at::Tensor score_weight;     // [in, L, heads]: Wk q, so keys are never formed
  at::Tensor value_weight;     // [in, heads, dim]
  OptionalTensor value_bias;   // [heads, dim]
  at::Tensor out_weight;       // [heads, dim, out]
  OptionalTensor out_bias;     // [out]
  OptionalTensor bias;         // [kh, kw, L, heads], relative bias
  OptionalTensor tap_weights;  // [kh, kw, L, heads]
};

// scores = x A, values = x Wv + bv, z = window attention, y = z Wo + bo.
//   x     [B, H, W, in], channels last
//   mask  [B, H, W] bool, true takes part; optional
// Returns [B, OH, OW, out], or with upsample = s > 1 (which needs s * s queries)
// [B, OH * s, OW * s, out]: query a * s + b is pixel (a, b) of each block.
//
// A key bias has no place here: it adds the same number to every score of a query and head, which
// the softmax takes out again.
//
// On the CPU in float32, bfloat16 and float16, without gradients, one fused kernel streams the
// image through and allocates nothing that grows with it. With gradients, x and the map of values
// and scores are kept for the backward pass, and the rest is computed again there.
at::Tensor qna_layer(const at::Tensor& x, const QnALayerParameters& parameters,
                     const OptionalTensor& mask, const WindowGeometry& geometry,
                     int64_t upsample = 1);

// The layer as the first half of a block has it:
//   y = (x +) drop_factor layer((x - mean) / sqrt(variance + epsilon)), mean and variance over the
//   features
// LayerNorm's own scale and shift are linear, so they belong into the parameters.
struct QnALayerBranch {
  double epsilon = 1e-6;
  OptionalTensor drop_factor = std::nullopt;  // [B]: a factor for each image
  bool residual = true;                       // whether x is added, which then is of y's shape
};

// In float32 on the CPU, outside autocast, one fused kernel forward and one backward; x and the map
// of values and scores are kept. Elsewhere by layer_norm and qna_layer.
at::Tensor qna_layer_branch(const at::Tensor& x, const QnALayerParameters& parameters,
                            const OptionalTensor& mask, const WindowGeometry& geometry,
                            const QnALayerBranch& branch);

// The checked shape of these arguments; throws qna::Error.
kernels::WindowShape qna_layer_shape(const at::Tensor& x, const QnALayerParameters& parameters,
                                     const OptionalTensor& mask, const WindowGeometry& geometry,
                                     int64_t upsample);

}  // namespace qna::ops
