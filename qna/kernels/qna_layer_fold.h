// From the parameters of a QnA layer, as they are learned, to those its kernel takes: queries go
// into the weights of the keys, the scale and shift of a LayerNorm before the layer into both
// weights behind it.
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"

namespace qna::kernels {

// score_weight[c, l, h] = scale[c] sum over d of key_weight[c, h, d] q[l, h, d]
// value_weight'[c, f] = scale[c] value_weight[c, f]
// value_bias'[f] = value_bias[f] + sum over c of shift[c] value_weight[c, f]
// with q = query / (|query| + 1e-6) / sqrt(dim), the length over d.
//
// There is no key bias, and no shift of the scores by the norm: what is the same for all taps of a
// window, the softmax takes out again.
template <typename T>
struct QnALayerFold {
  int64_t in_features, queries, heads, head_dim;
  bool normalize;         // whether queries are divided by their lengths
  bool stop_gradient;     // whether those count as constant
  const T* query;         // [L, heads, dim]
  const T* key_weight;    // [in, heads, dim]
  const T* value_weight;  // [in, heads, dim]
  const T* value_bias;    // [heads, dim] or null: 0
  const T* norm_scale;    // [in] or null: no norm, and only the score weights are made
  const T* norm_shift;    // [in] or null, both or none
};

template <typename T>
struct QnALayerFoldArgs {
  QnALayerFold<T> in;
  T* score_weight;  // [in, L, heads]
  T* value_weight;  // like those of `in`; null without a norm
  T* value_bias;
};

template <typename T>
struct QnALayerFoldBackwardArgs {
  QnALayerFold<T> in;
  const T* grad_score_weight;  // of the results
  const T* grad_value_weight;  // null without a norm
  const T* grad_value_bias;
  T* grad_query;
  T* grad_key_weight;
  T* grad_in_value_weight;  // of the inputs; null without a norm
  T* grad_norm_scale;
  T* grad_norm_shift;
};

// For float and double.
template <typename T>
void fold_qna_layer(const QnALayerFoldArgs<T>& args, Runtime& runtime);
template <typename T>
void fold_qna_layer_backward(const QnALayerFoldBackwardArgs<T>& args, Runtime& runtime);

}  // namespace qna::kernels
