// From the parameters of a QnA layer, as they are learned, to those the operator qna_layer takes.
#pragma once

#include "qna/ops/qna_layer.h"

namespace qna::ops {

struct QnALayerWeights {
  at::Tensor query;           // [L, features]
  at::Tensor key_weight;      // [in, features]
  OptionalTensor key_bias;    // [features]; the softmax takes it out, so its gradient is 0
  at::Tensor value_weight;    // [in, features]
  OptionalTensor value_bias;  // [features]
  OptionalTensor norm_scale;  // [in], of a LayerNorm before the layer; both or none
  OptionalTensor norm_shift;
  int64_t heads = 1;
  bool normalize = true;       // queries are divided by their lengths,
  bool stop_gradient = false;  // which count as constant
};

// score_weight, value_weight and value_bias of the result; the rest is the caller's. In float32 on
// the CPU by one kernel forward and one backward, elsewhere by LibTorch's operators.
QnALayerParameters fold_qna_layer(const QnALayerWeights& weights);
QnALayerParameters fold_qna_layer_composite(const QnALayerWeights& weights);

}  // namespace qna::ops
