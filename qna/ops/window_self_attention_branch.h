// The first half of a block with self-attention in windows, with gradients:
// x + drop_factor proj(attention(qkv(norm(x)))).
#pragma once

#include <array>

#include "qna/ops/geometry.h"

namespace qna::ops {

struct WindowSelfAttentionBranchParameters {
  at::Tensor norm_weight;  // [features]
  at::Tensor norm_bias;    // [features]
  at::Tensor qkv_weight;   // [3 features, features]; rows: q, k, v, each [heads, dim]
  at::Tensor proj_weight;  // [features, features]
  OptionalTensor bias;     // as that of ops::window_self_attention
  int64_t heads = 1;
  std::array<int64_t, 2> window = {1, 1};
  double epsilon = 1e-6;
};

// x [B, H, W, features]; mask [B, H, W] bool, true is a key; drop_factor [B]: a factor for each
// image, 0 drops the branch there. Both are optional. What is no key is still a query: it must be
// finite wherever gradients of the weights are wanted.
//
// In float32 on the CPU, outside autocast, the fused kernels of
// kernels/window_self_attention_branch.h run, which keep x, qkv and what attention made of it for
// the backward pass. Elsewhere, and for gradients of gradients, the same by ATen operators.
at::Tensor window_self_attention_branch(const at::Tensor& x,
                                        const WindowSelfAttentionBranchParameters& parameters,
                                        const OptionalTensor& mask,
                                        const OptionalTensor& drop_factor);

// The ATen form, for every device and dtype, differentiable any number of times.
at::Tensor window_self_attention_branch_composite(
    const at::Tensor& x, const WindowSelfAttentionBranchParameters& parameters,
    const OptionalTensor& mask, const OptionalTensor& drop_factor);

}  // namespace qna::ops
