// Self-attention inside windows that tile the map, after its first and before its last product:
//   out[i] = sum_j softmax_j(scale <q[i], k[j]> + bias[j - i]) v[j]    over the pixels j of i's
//   window
// Windows start at the top left; those at the bottom and right edge hold what is left of the map.
// Masked pixels are no keys. A window without keys gives 0.
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"

namespace qna::kernels {

struct WindowSelfAttentionArgs {
  int64_t batch;
  int64_t height;
  int64_t width;
  int64_t heads;
  int64_t head_dim;
  int64_t window_h;  // at most height
  int64_t window_w;  // at most width
  const float* qkv;  // [B, H, W, 3, heads, dim]
  float scale;
  // [heads, 2 bias_h - 1, 2 bias_w - 1] or null: entry (bias_h - 1 + dy, bias_w - 1 + dx) is for a
  // key dy rows below and dx columns right of its query. bias_h >= window_h, bias_w >= window_w.
  const float* bias;
  int64_t bias_h;
  int64_t bias_w;
  const uint8_t* mask;  // [B, H, W], 0 is no key; or null
  float* out;           // [B, H, W, heads, dim]
};

// The gradients; the weights of the keys are computed again.
struct WindowSelfAttentionBackwardArgs {
  WindowSelfAttentionArgs forward;  // as it was, with what it wrote to `out`
  const float* grad_out;            // [B, H, W, heads, dim]
  float* grad_qkv;                  // [B, H, W, 3, heads, dim]
  float* grad_bias;                 // like bias; null if that is
};

void window_self_attention_reference(const WindowSelfAttentionArgs& args, Runtime& runtime);
void window_self_attention_backward_reference(const WindowSelfAttentionBackwardArgs& args,
                                              Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h).
void window_self_attention(const WindowSelfAttentionArgs& args, Runtime& runtime);
void window_self_attention_backward(const WindowSelfAttentionBackwardArgs& args, Runtime& runtime);

}  // namespace qna::kernels
