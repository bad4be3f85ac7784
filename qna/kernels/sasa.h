// Stand-alone self-attention: every output pixel has a query of its own, forward and backward.
//
// For output (i, j) tap (ty, tx) looks at row i * stride - pad_top + ty * dilation and the like for
// columns; n(t) is the pixel under tap t. Taps outside the map or at a masked position take no
// part. Over the others, per head,
//   s[t] = <q[i, j], k[n(t)]> + bias[t]
//   p[t] = softmax over t of s[t]
//   out  = sum_t p[t] v[n(t)]
// A window with no tap gives 0, with gradient 0. Every window takes its own maximum off, so every
// finite score is exact up to rounding. A score of -inf takes its tap out for that head.
//
// T is float, BFloat16, Float16 (both: float32 arithmetic) or double (reference only).
#pragma once

#include <cstdint>

#include "qna/kernels/window_attention.h"

namespace qna::kernels {

// A map [B, H, W, heads x dim] and how it lies in memory.
template <typename T>
struct PixelMap {
  T* data;
  ValueLayout layout;
};

template <typename T>
struct SasaArgs {
  WindowShape shape;     // one query, not separate
  PixelMap<const T> q;   // [B, OH, OW, heads x dim]
  PixelMap<const T> k;   // [B, H, W, heads x dim]
  PixelMap<const T> v;   // [B, H, W, heads x dim]
  const Table<T>* bias;  // [kh, kw, heads] or null: 0
  const uint8_t* mask;   // [B, H, W], 0 is no key; or null: all are
  PixelMap<T> out;       // [B, OH, OW, heads x dim]
};

// The gradients; the weights of the taps are computed again.
template <typename T>
struct SasaBackwardArgs {
  SasaArgs<T> forward;  // as it was, but for `out`, which is not used
  PixelMap<const T> grad_out;
  PixelMap<T> grad_q;
  PixelMap<T> grad_k;
  PixelMap<T> grad_v;
  Table<T>* grad_bias;  // [kh, kw, heads], also where there was no bias
};

// Plain loops in double, one softmax per window: what the words above say, and nothing else.
template <typename T>
void sasa_forward_reference(const SasaArgs<T>& args, Runtime& runtime);
template <typename T>
void sasa_backward_reference(const SasaBackwardArgs<T>& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h). double: the reference.
template <typename T>
void sasa_forward(const SasaArgs<T>& args, Runtime& runtime);
template <typename T>
void sasa_backward(const SasaBackwardArgs<T>& args, Runtime& runtime);

}  // namespace qna::kernels
