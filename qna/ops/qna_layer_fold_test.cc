// A layer's parameters made for the operator: fused against composite, with gradients of both
// orders.
#include "qna/ops/qna_layer_fold.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace qna::ops {
namespace {

struct Option {
  bool key_bias = true, value_bias = true, norm = true, normalize = true, stop_gradient = false;
};
const Option kOptions[] = {{},
                           {.key_bias = false},
                           {.value_bias = false},
                           {.norm = false},
                           {.value_bias = false, .norm = false},
                           {.normalize = false},
                           {.stop_gradient = true}};

QnALayerWeights make(const Option& o) {
  torch::manual_seed(1);
  const auto tensor = [](at::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(); };
  const auto optional = [&](bool wanted, int64_t size) {
    return wanted ? OptionalTensor(tensor({size})) : std::nullopt;
  };
  return {.query = tensor({2, 12}),
          .key_weight = tensor({7, 12}),
          .key_bias = optional(o.key_bias, 12),
          .value_weight = tensor({7, 12}),
          .value_bias = optional(o.value_bias, 12),
          .norm_scale = optional(o.norm, 7),
          .norm_shift = optional(o.norm, 7),
          .heads = 3,
          .normalize = o.normalize,
          .stop_gradient = o.stop_gradient};
}

std::vector<torch::Tensor> inputs(const QnALayerWeights& w) {
  std::vector<torch::Tensor> all = {w.query, w.key_weight, w.value_weight};
  for (const OptionalTensor& t : {w.key_bias, w.value_bias, w.norm_scale, w.norm_shift}) {
    if (t.has_value()) all.push_back(*t);
  }
  return all;
}

// A number that depends on all results, not linearly.
torch::Tensor loss(const QnALayerParameters& p) {
  torch::Tensor sum = p.score_weight.square().sum() + p.value_weight.pow(3).sum();
  if (p.value_bias.has_value()) sum = sum + p.value_bias->square().sum();
  return sum;
}

void expect_close(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(a[i].defined() && b[i].defined()) << i;
    EXPECT_TRUE(torch::allclose(a[i], b[i], 1e-4, 1e-4)) << i;
  }
}

TEST(FoldQnALayer, FusedIsComposite) {
  for (const Option& option : kOptions) {
    const QnALayerWeights w = make(option);
    const QnALayerParameters fused = fold_qna_layer(w), plain = fold_qna_layer_composite(w);
    EXPECT_TRUE(torch::allclose(fused.score_weight, plain.score_weight, 1e-5, 1e-6));
    EXPECT_TRUE(torch::allclose(fused.value_weight, plain.value_weight, 1e-5, 1e-6));
    ASSERT_EQ(fused.value_bias.has_value(), plain.value_bias.has_value());
    if (plain.value_bias.has_value()) {
      EXPECT_TRUE(torch::allclose(*fused.value_bias, *plain.value_bias, 1e-5, 1e-6));
    }
    expect_close(torch::autograd::grad({loss(fused)}, inputs(w)),
                 torch::autograd::grad({loss(plain)}, inputs(w)));
  }
}

TEST(FoldQnALayer, GradientsOfGradients) {
  for (const Option& option : kOptions) {
    const QnALayerWeights w = make(option);
    const auto second = [&](const QnALayerParameters& p) {
      torch::Tensor sum = torch::zeros({});
      for (const torch::Tensor& g :
           torch::autograd::grad({loss(p)}, inputs(w), {}, true, /*create_graph=*/true)) {
        sum = sum + g.square().sum();
      }
      return torch::autograd::grad({sum}, {w.query, w.key_weight, w.value_weight});
    };
    expect_close(second(fold_qna_layer(w)), second(fold_qna_layer_composite(w)));
  }
}

// The softmax takes a key bias out again: no part in the results, a gradient all the same.
TEST(FoldQnALayer, KeyBiasHasAGradientOfZero) {
  QnALayerWeights w = make({});
  const QnALayerParameters p = fold_qna_layer(w);
  EXPECT_EQ(torch::autograd::grad({loss(p)}, {*w.key_bias})[0].abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace qna::ops
