// The QnA layer of "Learned Queries for Efficient Local Attention" (CVPR 2022).
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <ostream>

#include "qna/config/layers.h"
#include "qna/ops/qna_layer.h"

namespace qna::nn {

using config::AttentionScale;
using config::QnAOptions;

// Attention in overlapping windows with learned queries.
//
//   QnA layer(QnAOptions{.in_features = 64, .heads = 8, .kernel_size = {7, 7}});
//   Tensor y = layer(x);  // x [B, H, W, 64], channels last -> [B, H, W, 64]
//
// Any height and width. With stride it down-samples, with `upsample` it up-samples. When no
// gradient is wanted (torch::NoGradGuard, inference mode) one fused kernel runs on the CPU.
class QnAImpl : public torch::nn::Cloneable<QnAImpl> {
 public:
  // Throws qna::Error if the options do not fit together.
  explicit QnAImpl(const QnAOptions& options);

  // x [B, H, W, in_features]; mask [B, H, W] bool, true takes part.
  // -> [B, OH, OW, out_features], times `upsample` in height and width.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {});

  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  // What the operator takes, made from the parameters below. norm: a LayerNorm before the layer,
  // whose scale and shift go into them; or null.
  ops::QnALayerParameters parameters_for_layer(
      const torch::nn::LayerNormImpl* norm = nullptr) const;
  const QnAOptions& options() const { return options_; }
  const ops::WindowGeometry& geometry() const { return geometry_; }

  torch::Tensor query;            // [queries, features]
  torch::Tensor key_weight;       // [in_features, features]
  torch::Tensor key_bias;         // [features], or undefined
  torch::Tensor value_weight;     // [in_features, features]
  torch::Tensor value_bias;       // [features], or undefined
  torch::Tensor out_weight;       // [features, out_features]
  torch::Tensor out_bias;         // [out_features], or undefined
  torch::Tensor relative_bias;    // [kh, kw, queries, heads], or undefined
  torch::Tensor attention_scale;  // [kh, kw, queries, heads] or [queries, heads], or undefined

 private:
  std::optional<torch::Tensor> tap_weights() const;

  QnAOptions options_;  // with all defaults filled in
  ops::WindowGeometry geometry_;
};

TORCH_MODULE(QnA);

}  // namespace qna::nn
