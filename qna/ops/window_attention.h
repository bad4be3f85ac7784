// The operator qna::window_attention: attention in overlapping windows over given scores and
// values.
#pragma once

#include <tuple>

#include "qna/ops/geometry.h"

namespace qna::ops {

// Softmax over each window of scores (+ bias), per query and head, and the weighted sum of values.
//   scores       [B, H, W, L, heads]
//   values       [B, H, W, heads, dim], of the same dtype
//   bias         [kh, kw, L, heads], added to the scores by tap; optional
//   tap_weights  [kh, kw, L, heads], multiply the attention by tap; optional
//   mask         [B, H, W] bool, true takes part; optional
// Returns [B, OH, OW, heads, dim]: the queries' attention maps are summed before they meet the
// values. With `separate`, [B, OH, OW, L, heads, dim]: every query on its own.
// A window in which nothing takes part gives 0, with gradient 0.
//
// On the CPU in float32, bfloat16 and float16 the fused kernels run, forward and backward; other
// devices and dtypes use the composite form. Differentiable twice (the second time composite).
at::Tensor window_attention(const at::Tensor& scores, const at::Tensor& values,
                            const OptionalTensor& bias, const OptionalTensor& tap_weights,
                            const OptionalTensor& mask, const WindowGeometry& geometry,
                            bool separate = false);

// The checked shape of these arguments; throws qna::Error.
kernels::WindowShape window_attention_shape(const at::Tensor& scores, const at::Tensor& values,
                                            const OptionalTensor& bias,
                                            const OptionalTensor& tap_weights,
                                            const OptionalTensor& mask,
                                            const WindowGeometry& geometry, bool separate);

// Gradients of scores, values, bias and tap_weights by the fused kernels, CPU only. The last two
// are float32 whatever the maps' dtype.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> window_attention_backward(
    const at::Tensor& grad_out, const at::Tensor& scores, const at::Tensor& values,
    const OptionalTensor& bias, const OptionalTensor& tap_weights, const OptionalTensor& mask,
    const kernels::WindowShape& shape);

}  // namespace qna::ops
