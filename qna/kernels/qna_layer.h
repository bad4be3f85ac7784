// The whole QnA layer, x -> y, in one pass over the image:
//   scores = x A, values = x Wv + bv, z = window attention, y = z Wo + bo
// and, as a block of a network wants it, norm(x) in the place of x and a residual added to y.
// A thread keeps a ring of the last window's rows; nothing it allocates grows with the image.
#pragma once

#include "qna/kernels/dense.h"
#include "qna/kernels/window_attention.h"

namespace qna::kernels {

// A block's second half, done on each row of outputs while it is in cache.
struct QnALayerMlp {
  const PackedWeights* expand;
  const PackedWeights* contract;
  Activation activation;
  Norm norm;
};

template <typename T>
struct QnALayerArgs {
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
  T* y;                          // [B, OH * upsample, OW * upsample, out_features]; not x
  // For the backward pass, or null: values and scores, [B, H, W, (dim, heads) and (L, heads)].
  // Never 16 bits: a rounded score of 20 would change the weights by percents. May be left
  // unwritten for images whose drop_factor is 0.
  Table<T>* saved = nullptr;
  Norm norm = {};
  const T* residual = nullptr;  // like y, or null; may be x, or y
  // [B] or null: y = residual + drop_factor (z Wo + bo), a factor for each image. Where it is 0
  // nothing is computed, and what x holds does not matter. Float32 and float64 only, neither with
  // an MLP nor when up-sampling, and the residual is not y.
  const Table<T>* drop_factor = nullptr;
  // Weights, biases and tables by pack_qna_layer with the same arguments but for batch and map
  // size, or null. Where given, the pointers to them above are not used.
  const PackedWeights* packed = nullptr;
  WeightType weight_type = WeightType::kFloat32;  // as which pack_qna_layer keeps the weights
  const QnALayerMlp* mlp = nullptr;               // float32 only, and not when up-sampling
};

// The layout of the values in `saved`, whose pixels are followed by their scores.
inline ValueLayout saved_layout(const WindowShape& s) {
  return {s.features() + s.scores(), 1, s.heads};
}

// The gradients of everything, in one pass over the image: z is computed again on the way.
template <typename T>
struct QnALayerBackwardArgs {
  WindowShape shape;
  int64_t in_features;
  int64_t out_features;
  int64_t upsample = 1;
  const T* grad_y;  // like QnALayerArgs::y
  const T* x;
  const Table<T>* saved;  // from the forward pass
  const Table<T>* score_weight;
  const Table<T>* value_weight;
  const Table<T>* out_weight;
  const Table<T>* bias;
  const Table<T>* tap_weights;
  const uint8_t* mask;
  T* grad_x;                    // like x, or null
  Table<T>* grad_score_weight;  // like the weights; the biases may be null
  Table<T>* grad_value_weight;
  Table<T>* grad_value_bias;
  Table<T>* grad_out_weight;
  Table<T>* grad_out_bias;
  Table<T>* grad_bias;         // [kh, kw, L, heads]
  Table<T>* grad_tap_weights;  // [kh, kw, L, heads]
  // As in the forward pass; float32 and float64 only. With a norm, grad_x is the gradient of what
  // was normalised.
  Norm norm = {};
  const Table<T>* drop_factor = nullptr;
  bool residual_is_x = false;  // adds grad_y to grad_x
};

template <typename T>
void qna_layer_forward_reference(const QnALayerArgs<T>& args, Runtime& runtime);
template <typename T>
PackedWeights pack_qna_layer_reference(const QnALayerArgs<T>& args, Runtime& runtime);
template <typename T>
void qna_layer_backward_reference(const QnALayerBackwardArgs<T>& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h). double: the reference.
template <typename T>
void qna_layer_forward(const QnALayerArgs<T>& args, Runtime& runtime);
template <typename T>
PackedWeights pack_qna_layer(const QnALayerArgs<T>& args, Runtime& runtime);
template <typename T>
void qna_layer_backward(const QnALayerBackwardArgs<T>& args, Runtime& runtime);

}  // namespace qna::kernels
