// The whole QnA layer for inference, x -> y, in one pass over the image:
//   scores = x A, values = x Wv + bv, z = window attention, y = z Wo + bo
// A thread keeps a ring of the last window's rows; nothing it allocates grows with the image.
#pragma once

#include "qna/kernels/window_attention.h"

namespace qna::kernels {

template <typename T>
struct LayerArgs {
  // shape.separate means up-sampling by `upsample`: query a * upsample + b of window (i, j) is
  // output pixel (i * upsample + a, j * upsample + b), and queries = upsample^2.
  WindowShape shape;
  int64_t in_features;
  int64_t out_features;
  int64_t upsample = 1;
  const T* x;                    // [B, H, W, in_features]
  const Table<T>* score_weight;  // [in_features, L, heads]
  const Table<T>* value_weight;  // [in_features, heads, dim]
  const Table<T>* value_bias;    // [heads, dim] or null
  const Table<T>* out_weight;    // [heads, dim, out_features]
  const Table<T>* out_bias;      // [out_features] or null
  const Table<T>* bias;          // [kh, kw, L, heads] or null
  const Table<T>* tap_weights;   // [kh, kw, L, heads] or null
  const uint8_t* mask;           // [B, H, W] or null
  T* y;                          // [B, OH * upsample, OW * upsample, out_features]
};

template <typename T>
void layer_forward_reference(const LayerArgs<T>& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h). double: the reference.
template <typename T>
void layer_forward(const LayerArgs<T>& args, Runtime& runtime);

}  // namespace qna::kernels
