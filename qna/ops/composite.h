// Window attention and the QnA layer written in ATen operators: for every device and dtype, for
// double backward, and as a second reference. Differentiable any number of times.
#pragma once

#include "qna/ops/geometry.h"

namespace qna::ops {

// The paper's algorithm: exp(score) * value for every query, and depth-wise convolutions as window
// sums. Stable: shifted by a maximum, and where a window's sum is still too small to trust, the
// answer comes from window_attention_gather. Arguments as for window_attention, already checked.
at::Tensor window_attention_composite(const at::Tensor& scores, const at::Tensor& values,
                                      const OptionalTensor& bias, const OptionalTensor& tap_weights,
                                      const OptionalTensor& mask,
                                      const kernels::WindowShape& shape);

// A softmax per window over gathered taps: exact for every finite input, with taps times the
// memory.
at::Tensor window_attention_gather(const at::Tensor& scores, const at::Tensor& values,
                                   const OptionalTensor& bias, const OptionalTensor& tap_weights,
                                   const OptionalTensor& mask, const kernels::WindowShape& shape);

// The layer around window_attention_composite. Arguments as for layer, already checked.
at::Tensor qna_layer_composite(const at::Tensor& x, const at::Tensor& score_weight,
                               const at::Tensor& value_weight, const OptionalTensor& value_bias,
                               const at::Tensor& out_weight, const OptionalTensor& out_bias,
                               const OptionalTensor& bias, const OptionalTensor& tap_weights,
                               const OptionalTensor& mask, const kernels::WindowShape& shape,
                               int64_t upsample);

// [B, OH, OW, s * s, features] -> [B, OH * s, OW * s, features].
at::Tensor spread_queries(const at::Tensor& z, int64_t upsample);

}  // namespace qna::ops
