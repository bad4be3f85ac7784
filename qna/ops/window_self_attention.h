// Self-attention in windows that tile the map, between its two products.
#pragma once

#include <array>

#include "qna/ops/geometry.h"

namespace qna::ops {

// qkv [B, H, W, 3 * heads * dim] -> [B, H, W, heads * dim]; scores are scaled by 1 / sqrt(dim).
//   window  height and width; a map that is smaller is one window
//   bias    [heads, 2 h - 1 or more, 2 w - 1 or more], for key minus query (see
//           kernels/window_self_attention.h); optional
//   mask    [B, H, W] bool, true is a key; optional. A window without keys gives 0.
//
// In float32 on the CPU, outside autocast, by the kernels, which keep qkv and the result for the
// backward pass and compute the weights again there. Elsewhere, and for gradients of gradients, by
// ATen operators.
at::Tensor window_self_attention(const at::Tensor& qkv, int64_t heads,
                                 std::array<int64_t, 2> window, const OptionalTensor& bias,
                                 const OptionalTensor& mask);

// The ATen form, for every device and dtype, differentiable any number of times.
at::Tensor window_self_attention_composite(const at::Tensor& qkv, int64_t heads,
                                           std::array<int64_t, 2> window,
                                           const OptionalTensor& bias, const OptionalTensor& mask);

// Throws qna::Error in the name of an operator on map [B, H, W, C] unless its window, bias and mask
// are as above.
void check_attention_windows(const char* name, const at::Tensor& map, int64_t heads,
                             std::array<int64_t, 2> window, const OptionalTensor& bias,
                             const OptionalTensor& mask);

}  // namespace qna::ops
