// A layer's parameters as the float32 arrays that the kernels take.
#pragma once

#include "qna/kernels/qna_layer.h"
#include "qna/ops/qna_layer.h"
#include "qna/ops/torch_runtime.h"

namespace qna::ops {

struct QnALayerTables {
  explicit QnALayerTables(const QnALayerParameters& p)
      : score_weight(as_table(p.score_weight)),
        value_weight(as_table(p.value_weight)),
        value_bias(as_table(p.value_bias)),
        out_weight(as_table(p.out_weight)),
        out_bias(as_table(p.out_bias)),
        bias(as_table(p.bias)),
        tap_weights(as_table(p.tap_weights)) {}

  template <typename T>
  void point(kernels::QnALayerArgs<T>& args) const {
    args.score_weight = table_pointer(score_weight);
    args.value_weight = table_pointer(value_weight);
    args.value_bias = table_pointer(value_bias);
    args.out_weight = table_pointer(out_weight);
    args.out_bias = table_pointer(out_bias);
    args.bias = table_pointer(bias);
    args.tap_weights = table_pointer(tap_weights);
  }

  OptionalTensor score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights;
};

}  // namespace qna::ops
