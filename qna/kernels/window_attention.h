// Window attention over given scores and values, forward and backward.
//
// For output (i, j) tap (ty, tx) looks at row i * stride - pad_top + ty * dilation and the like
// for columns. Taps outside the map or at a masked position take no part. Over the others,
//   p[l, t] = softmax over t of (score[l, n(t)] + bias[l, t])        per query l and head
//   combined:  z     = sum_t (sum_l w[l, t] p[l, t]) value[n(t)]
//   separate:  z[l]  = sum_t w[l, t] p[l, t] value[n(t)]
// A window with no tap gives 0, with gradient 0. A score of -inf takes its tap out for that query
// and head.
//
// T is float, BFloat16, Float16 (both: float32 arithmetic) or double (reference only).
#pragma once

#include <cstdint>

#include "qna/base/half.h"
#include "qna/base/runtime.h"
#include "qna/kernels/window_shape.h"

namespace qna::kernels {

// Bias, tap weights and layer weights are small and always held at the precision of the arithmetic.
template <typename T>
struct TableType {
  using type = float;
};
template <>
struct TableType<double> {
  using type = double;
};
template <typename T>
using Table = typename TableType<T>::type;

// Where the channels of a value map lie: channel (head, dim) of pixel n is at
// data[n * pixel_stride + head * head_stride + dim * dim_stride].
// [heads, dim] is {heads * dim, dim, 1}; heads as the fast index is {heads * dim, 1, heads}, which
// the SIMD kernels read without a permutation.
struct ValueLayout {
  int64_t pixel_stride;
  int64_t head_stride;
  int64_t dim_stride;
};

template <typename T>
struct WindowAttentionArgs {
  WindowShape shape;
  const T* scores;  // [B, H, W, L, heads], pixels score_stride apart
  int64_t score_stride;
  const T* values;  // [B, H, W, heads x dim]
  ValueLayout value_layout;
  const Table<T>* bias;         // [kh, kw, L, heads] or null: 0
  const Table<T>* tap_weights;  // [kh, kw, L, heads] or null: 1
  const uint8_t* mask;          // [B, H, W], 0 takes no part; or null: all do
  T* out;                       // [B, OH, OW, (L,) heads x dim]
  ValueLayout out_layout;       // pixel_stride: from one window's (and query's) output to the next
};

template <typename T>
struct WindowAttentionBackwardArgs {
  WindowShape shape;
  const T* grad_out;  // like WindowAttentionArgs::out
  ValueLayout out_layout;
  const T* scores;
  int64_t score_stride;
  const T* values;
  ValueLayout value_layout;
  const Table<T>* bias;
  const Table<T>* tap_weights;
  const uint8_t* mask;
  T* grad_scores;  // like scores, pixels grad_score_stride apart
  int64_t grad_score_stride;
  T* grad_values;  // like values, by grad_value_layout
  ValueLayout grad_value_layout;
  Table<T>* grad_bias;         // [kh, kw, L, heads]
  Table<T>* grad_tap_weights;  // [kh, kw, L, heads]
};

// Plain loops in double, one softmax per window: what the words above say, and nothing else.
template <typename T>
void window_attention_forward_reference(const WindowAttentionArgs<T>& args, Runtime& runtime);
template <typename T>
void window_attention_backward_reference(const WindowAttentionBackwardArgs<T>& args,
                                         Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h). double: the reference.
template <typename T>
void window_attention_forward(const WindowAttentionArgs<T>& args, Runtime& runtime);
template <typename T>
void window_attention_backward(const WindowAttentionBackwardArgs<T>& args, Runtime& runtime);

}  // namespace qna::kernels
