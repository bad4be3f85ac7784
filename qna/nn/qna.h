// The QnA layer of "Learned Queries for Efficient Local Attention" (CVPR 2022).
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <array>
#include <optional>
#include <ostream>

#include "qna/ops/layer.h"

namespace qna::nn {

// How the attention maps of several queries are weighted before they are summed.
enum class AttentionScale {
  kPerTap,    // learned, per tap, query and head, from normal(0, 0.02): the paper's
  kPerQuery,  // learned, per query and head, from normal(0, 0.02)
  kOnes,      // learned, per tap, query and head, from 1
  kAverage,   // fixed 1 / queries
  kSigned,    // fixed +1 for the first half of (queries x heads), -1 for the other
  kNone,      // fixed 1
};

struct QnAOptions {
  int64_t in_features = 0;   // must be given
  int64_t features = 0;      // D, inside the layer; 0: as out_features
  int64_t out_features = 0;  // 0: as features, or as in_features if that is 0 too
  int64_t heads = 8;
  int64_t queries = 2;  // with upsample > 1 always upsample * upsample (2 and 0: not given)
  std::array<int64_t, 2> kernel_size = {3, 3};  // height, width
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> dilation = {1, 1};
  // top, bottom, left, right; nothing: half the window, so that stride 1 keeps the size. An even
  // window gets its extra row and column at the bottom and right.
  std::optional<std::array<int64_t, 4>> padding = std::nullopt;
  int64_t upsample = 1;  // s: the map grows s times, each window's s * s queries fill a block
  bool normalize_queries = true;
  bool normalize_stop_gradient = false;  // the queries' norm counts as a constant
  bool relative_bias = true;
  AttentionScale attention_scale = AttentionScale::kPerTap;  // with upsample > 1: kNone is used
  bool bias = false;                                         // biases of keys, values and output
};

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

  // What the operator takes, made from the parameters below.
  ops::LayerParameters parameters_for_layer() const;
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
  torch::Tensor normalized_queries() const;
  std::optional<torch::Tensor> tap_weights() const;

  QnAOptions options_;  // with all defaults filled in
  ops::WindowGeometry geometry_;
};

TORCH_MODULE(QnA);

}  // namespace qna::nn
