// The first half of a block with self-attention in windows, in training, forward and backward:
//   n = (x - mean) / sqrt(variance + epsilon) over each pixel
//   qkv = (g n + s) Wqkv^T
//   y = x + drop_factor (attention(qkv) Wproj^T)
// where g and s are LayerNorm's scale and shift, attention is that of window_self_attention.h with
// scores scaled by 1 / sqrt(dim), the weights lie as linear layers have them, and drop_factor is a
// factor for each image, as stochastic depth draws them. What drop_factor drops (0) is not
// computed: there y = x, and qkv and mixed are not written.
#pragma once

#include <cmath>
#include <cstdint>

#include "qna/base/runtime.h"
#include "qna/kernels/window_self_attention.h"

namespace qna::kernels {

// What both directions are given.
template <typename T>
struct WindowSelfAttentionBranchInputs {
  int64_t batch;
  int64_t height;
  int64_t width;
  int64_t features;
  int64_t heads;     // divides features
  int64_t window_h;  // at most height
  int64_t window_w;  // at most width
  double epsilon;
  const T* x;            // [B, H, W, features]
  const T* norm_weight;  // g [features]
  const T* norm_bias;    // s [features]
  const T* qkv_weight;   // [3 features, features]; rows: q, k, v, each [heads, dim]
  const T* proj_weight;  // [features, features]
  const T* bias;         // as in WindowSelfAttentionArgs, or null
  int64_t bias_h;
  int64_t bias_w;
  const uint8_t* mask;   // [B, H, W], 0 is no key; or null
  const T* drop_factor;  // [B], or null: all 1
  int64_t image_rows() const { return height * width; }
  int64_t rows() const { return batch * image_rows(); }
  // The attention between the two products.
  WindowSelfAttentionArgs<T> attention(const T* qkv, T* mixed) const {
    const int64_t dim = features / heads;
    return {.batch = batch,
            .height = height,
            .width = width,
            .heads = heads,
            .head_dim = dim,
            .window_h = window_h,
            .window_w = window_w,
            .qkv = qkv,
            .scale = 1 / std::sqrt(static_cast<T>(dim)),
            .bias = bias,
            .bias_h = bias_h,
            .bias_w = bias_w,
            .mask = mask,
            .out = mixed};
  }
};

template <typename T>
struct WindowSelfAttentionBranchArgs {
  WindowSelfAttentionBranchInputs<T> in;
  T* qkv;    // [B, H, W, 3 features], for the backward pass
  T* mixed;  // [B, H, W, features]: attention(qkv), for the backward pass
  T* y;      // [B, H, W, features]; not x
};

template <typename T>
struct WindowSelfAttentionBranchBackwardArgs {
  WindowSelfAttentionBranchInputs<T> in;
  const T* qkv;     // from the forward pass
  const T* mixed;   // from the forward pass
  const T* grad_y;  // [B, H, W, features]
  T* grad_x;        // [B, H, W, features]
  T* grad_norm_weight;
  T* grad_norm_bias;
  T* grad_qkv_weight;
  T* grad_proj_weight;
  T* grad_bias;  // like bias; null if that is
};

// float and double.
template <typename T>
void window_self_attention_branch_reference(const WindowSelfAttentionBranchArgs<T>& args,
                                            Runtime& runtime);
template <typename T>
void window_self_attention_branch_backward_reference(
    const WindowSelfAttentionBranchBackwardArgs<T>& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h). The backward pass needs
// scratch of about 8 MB, or what one image takes if that is more, and twice the weights, whatever
// the number of images.
void window_self_attention_branch(const WindowSelfAttentionBranchArgs<float>& args,
                                  Runtime& runtime);
void window_self_attention_branch_backward(const WindowSelfAttentionBranchBackwardArgs<float>& args,
                                           Runtime& runtime);

}  // namespace qna::kernels
