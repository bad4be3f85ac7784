// Self-attention inside windows that tile the map, after its first and before its last product:
//   out[i] = sum_j softmax_j(scale <q[i], k[j]> + bias[j - i]) v[j]    over the pixels j of i's
//   window
// Windows start at the top left; those at the bottom and right edge hold what is left of the map.
// Masked pixels are no keys. A window without keys gives 0.
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"

namespace qna::kernels {

template <typename T>
struct WindowSelfAttentionArgs {
  int64_t batch;
  int64_t height;
  int64_t width;
  int64_t heads;
  int64_t head_dim;
  int64_t window_h;  // at most height
  int64_t window_w;  // at most width
  const T* qkv;      // [B, H, W, 3, heads, dim]
  T scale;
  // [heads, 2 bias_h - 1, 2 bias_w - 1] or null: entry (bias_h - 1 + dy, bias_w - 1 + dx) is for a
  // key dy rows below and dx columns right of its query. bias_h >= window_h, bias_w >= window_w.
  const T* bias;
  int64_t bias_h;
  int64_t bias_w;
  const uint8_t* mask;  // [B, H, W], 0 is no key; or null
  T* out;               // [B, H, W, heads, dim]
};

// The gradients; the weights of the keys are computed again.
template <typename T>
struct WindowSelfAttentionBackwardArgs {
  WindowSelfAttentionArgs<T> forward;  // as it was, with what it wrote to `out`
  const T* grad_out;                   // [B, H, W, heads, dim]
  T* grad_qkv;                         // [B, H, W, 3, heads, dim]
  T* grad_bias;                        // like bias; null if that is
};

// float and double.
template <typename T>
void window_self_attention_reference(const WindowSelfAttentionArgs<T>& args, Runtime& runtime);
template <typename T>
void window_self_attention_backward_reference(const WindowSelfAttentionBackwardArgs<T>& args,
                                              Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h).
void window_self_attention(const WindowSelfAttentionArgs<float>& args, Runtime& runtime);
void window_self_attention_backward(const WindowSelfAttentionBackwardArgs<float>& args,
                                    Runtime& runtime);

}  // namespace qna::kernels
