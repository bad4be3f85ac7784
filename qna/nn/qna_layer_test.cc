// The module: its options, parameters, and its answer against plain loops written from the paper.
#include "qna/nn/qna_layer.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "qna/ops/tensors_testonly.h"

namespace qna::nn {
namespace {

constexpr AttentionScale kScales[] = {AttentionScale::kPerTap, AttentionScale::kPerQuery,
                                      AttentionScale::kOnes,   AttentionScale::kAverage,
                                      AttentionScale::kSigned, AttentionScale::kNone};

const auto* const kOneThread = ::testing::AddGlobalTestEnvironment(new ops::testing::OneThread);

// No parameter stays at a value that hides a mistake (zeros, ones).
void randomize(QnA& layer, uint64_t seed = 1) {
  torch::manual_seed(seed);
  torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : layer->parameters()) parameter.normal_(0, 0.7);
}

double at(const torch::Tensor& tensor, std::initializer_list<int64_t> index) {
  int64_t offset = 0;
  int64_t axis = 0;
  for (const int64_t i : index) offset += i * tensor.stride(axis++);
  return tensor.data_ptr<float>()[offset];
}

// What multiplies the attention of tap (ty, tx), query l and head h.
double scale_at(const QnA& layer, int64_t ty, int64_t tx, int64_t l, int64_t h) {
  const QnAOptions& o = layer->options();
  switch (o.attention_scale) {
    case AttentionScale::kPerTap:
    case AttentionScale::kOnes:
      return at(layer->attention_scale, {ty, tx, l, h});
    case AttentionScale::kPerQuery:
      return at(layer->attention_scale, {l, h});
    case AttentionScale::kAverage:
      return 1.0 / static_cast<double>(o.queries);
    case AttentionScale::kSigned:  // query-major: the first half of all L * heads
      return l * o.heads + h < o.queries * o.heads / 2 ? 1 : -1;
    case AttentionScale::kNone:
      return 1;
  }
  return 0;
}

// The layer by the paper, keys and all, in double: for one output pixel y[b, row, column, :].
std::vector<double> paper_pixel(const QnA& layer, const torch::Tensor& x, int64_t b, int64_t row,
                                int64_t column) {
  const QnAOptions& o = layer->options();
  const int64_t dim = o.features / o.heads;
  const int64_t s = o.upsample;
  const int64_t i = row / s;
  const int64_t j = column / s;
  const auto project = [&](const torch::Tensor& weight, const torch::Tensor& bias, int64_t py,
                           int64_t px, int64_t feature) {
    double sum = bias.defined() ? at(bias, {feature}) : 0;
    for (int64_t c = 0; c < o.in_features; ++c) {
      sum += at(x, {b, py, px, c}) * at(weight, {c, feature});
    }
    return sum;
  };
  std::vector<double> z(o.features, 0.0);
  for (int64_t l = 0; l < o.queries; ++l) {
    if (s > 1 && l != row % s * s + column % s) continue;  // this pixel's query
    for (int64_t h = 0; h < o.heads; ++h) {
      double norm = 0;
      for (int64_t d = 0; d < dim; ++d) norm += std::pow(at(layer->query, {l, h * dim + d}), 2);
      norm = o.normalize_queries ? std::sqrt(norm) + 1e-6 : 1;
      double sum = 0;
      std::vector<double> weighted(dim, 0.0);
      for (int64_t ty = 0; ty < o.kernel_size[0]; ++ty)
        for (int64_t tx = 0; tx < o.kernel_size[1]; ++tx) {
          const int64_t py = i * o.stride[0] - (*o.padding)[0] + ty * o.dilation[0];
          const int64_t px = j * o.stride[1] - (*o.padding)[2] + tx * o.dilation[1];
          if (py < 0 || py >= x.size(1) || px < 0 || px >= x.size(2)) continue;
          double score = 0;
          for (int64_t d = 0; d < dim; ++d) {
            score += at(layer->query, {l, h * dim + d}) / norm *
                     project(layer->key_weight, layer->key_bias, py, px, h * dim + d);
          }
          score /= std::sqrt(static_cast<double>(dim));
          if (o.relative_bias) score += at(layer->relative_bias, {ty, tx, l, h});
          const double e = std::exp(score);
          sum += e;
          for (int64_t d = 0; d < dim; ++d) {
            weighted[d] += e * scale_at(layer, ty, tx, l, h) *
                           project(layer->value_weight, layer->value_bias, py, px, h * dim + d);
          }
        }
      for (int64_t d = 0; d < dim; ++d) z[h * dim + d] += sum > 0 ? weighted[d] / sum : 0;
    }
  }
  std::vector<double> y;
  for (int64_t out = 0; out < o.out_features; ++out) {
    double sum = layer->out_bias.defined() ? at(layer->out_bias, {out}) : 0;
    for (int64_t f = 0; f < o.features; ++f) sum += z[f] * at(layer->out_weight, {f, out});
    y.push_back(sum);
  }
  return y;
}

// All pixels by the paper against the module, in training and inference.
void expect_paper(const QnAOptions& options) {
  QnA layer(options);
  randomize(layer);
  const QnAOptions& o = layer->options();
  const torch::Tensor x = torch::randn({2, 5, 6, o.in_features});
  const torch::Tensor trained = layer(x);
  EXPECT_TRUE(trained.requires_grad());
  torch::NoGradGuard no_grad;
  for (const torch::Tensor& y : {trained.detach(), layer(x)}) {
    ASSERT_EQ(y.size(3), o.out_features);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t row = 0; row < y.size(1); ++row)
        for (int64_t column = 0; column < y.size(2); ++column) {
          const std::vector<double> expected = paper_pixel(layer, x, b, row, column);
          for (int64_t c = 0; c < o.out_features; ++c) {
            // float32, sums of less than 100 terms of order 1 to 10.
            ASSERT_NEAR(at(y, {b, row, column, c}), expected[c],
                        1e-5 * std::max(1.0, y.abs().max().item<double>()))
                << b << " " << row << " " << column << " " << c;
          }
        }
  }
}

TEST(QnALayer, IsThePapers) { expect_paper({.in_features = 4, .heads = 2}); }

TEST(QnALayer, EveryAttentionScale) {
  for (const AttentionScale scale : kScales) {
    SCOPED_TRACE(static_cast<int>(scale));
    expect_paper({.in_features = 3,
                  .features = 6,
                  .out_features = 5,
                  .heads = 3,
                  .queries = 2,
                  .attention_scale = scale});
  }
  // An odd number of queries: the signs change within one.
  expect_paper({.in_features = 3,
                .features = 6,
                .heads = 2,
                .queries = 3,
                .attention_scale = AttentionScale::kSigned});
}

TEST(QnALayer, EverySwitch) {
  for (const bool normalize : {false, true})
    for (const bool relative_bias : {false, true})
      for (const bool bias : {false, true}) {
        expect_paper({.in_features = 3,
                      .features = 4,
                      .out_features = 3,
                      .heads = 2,
                      .queries = 3,
                      .normalize_queries = normalize,
                      .relative_bias = relative_bias,
                      .bias = bias});
      }
}

TEST(QnALayer, OtherWindows) {
  expect_paper({.in_features = 2, .features = 4, .heads = 2, .kernel_size = {2, 4}});
  expect_paper({.in_features = 2, .features = 4, .heads = 2, .stride = {2, 3}});
  expect_paper({.in_features = 2, .features = 4, .heads = 2, .dilation = {1, 2}});
  expect_paper({.in_features = 2,
                .features = 4,
                .heads = 2,
                .kernel_size = {5, 1},
                .stride = {2, 1},
                .padding = {{4, 0, 0, 2}}});
}

TEST(QnALayer, UpSampling) {
  for (const int64_t upsample : {2, 3, 4}) {
    SCOPED_TRACE(upsample);
    expect_paper({.in_features = 3,
                  .features = 4,
                  .out_features = 5,
                  .heads = 2,
                  .upsample = upsample,
                  .bias = true});
    QnA layer(QnAOptions{.in_features = 4, .heads = 2, .upsample = upsample});
    EXPECT_EQ(layer->options().queries, upsample * upsample);
    EXPECT_EQ(layer(torch::randn({2, 3, 5, 4})).sizes(),
              at::IntArrayRef({2, 3 * upsample, 5 * upsample, 4}));
  }
}

TEST(QnALayer, DefaultPaddingKeepsTheSize) {
  for (const std::array<int64_t, 2> kernel :
       {std::array<int64_t, 2>{3, 3}, {7, 7}, {2, 2}, {4, 6}, {1, 5}, {5, 2}, {1, 1}})
    for (const int64_t dilation : {1, 2, 3}) {
      QnA layer(QnAOptions{
          .in_features = 4, .heads = 2, .kernel_size = kernel, .dilation = {dilation, 1}});
      EXPECT_EQ(layer(torch::randn({1, 9, 8, 4})).sizes(), at::IntArrayRef({1, 9, 8, 4}))
          << kernel[0] << " x " << kernel[1] << ", dilation " << dilation;
    }
  // Stride 2 halves, rounding up.
  QnA down(QnAOptions{.in_features = 4, .out_features = 8, .heads = 2, .stride = {2, 2}});
  EXPECT_EQ(down(torch::randn({1, 9, 8, 4})).sizes(), at::IntArrayRef({1, 5, 4, 8}));
}

TEST(QnALayer, Mask) {
  QnA layer(QnAOptions{.in_features = 4, .heads = 2});
  randomize(layer);
  const torch::Tensor x = torch::randn({1, 6, 7, 4});
  torch::Tensor mask = torch::ones({1, 6, 7}, torch::kBool);
  EXPECT_TRUE(torch::equal(layer(x, mask), layer(x)));
  // A map whose right part is masked is the smaller map.
  mask.narrow(2, 5, 2).fill_(false);
  const torch::Tensor y = layer(x, mask).narrow(2, 0, 5);
  const torch::Tensor smaller = layer(x.narrow(2, 0, 5).contiguous());
  EXPECT_LE((y - smaller).abs().max().item<float>(), 1e-5);
}

// With the norm as a constant the gradient differs by exactly the part that goes through the norm.
TEST(QnALayer, StopGradientOfTheNorm) {
  const torch::Tensor x = torch::randn({1, 5, 6, 4}, torch::kDouble);
  torch::Tensor gradients[2];
  torch::Tensor outputs[2];
  torch::Tensor query;
  for (const bool stop : {false, true}) {
    QnA layer(QnAOptions{.in_features = 4, .heads = 2, .normalize_stop_gradient = stop});
    randomize(layer, 3);
    layer->to(torch::kDouble);
    outputs[stop] = layer(x);
    outputs[stop].square().sum().backward();
    gradients[stop] = layer->query.grad().view({2, 2, 2});  // [queries, heads, dim]
    query = layer->query.detach().view({2, 2, 2});
  }
  EXPECT_TRUE(torch::equal(outputs[0], outputs[1]));
  EXPECT_GT((gradients[0] - gradients[1]).abs().max().item<double>(), 1e-6);
  // d(q / (n + e)) with n = |q|: the full gradient is g - q <g, q> / (n (n + e)), where g is the
  // stopped one.
  const torch::Tensor norm = query.norm(2, -1, true);
  const torch::Tensor along = (gradients[1] * query).sum(-1, true);
  const torch::Tensor full = gradients[1] - query * along / (norm * (norm + 1e-6));
  EXPECT_TRUE(torch::allclose(full, gradients[0], 1e-9, 1e-12));
}

TEST(QnALayer, Parameters) {
  QnA layer(QnAOptions{.in_features = 6,
                       .features = 8,
                       .out_features = 10,
                       .heads = 4,
                       .queries = 3,
                       .kernel_size = {3, 5},
                       .bias = true});
  const std::map<std::string, std::vector<int64_t>> expected = {
      {"query", {3, 8}},
      {"key_weight", {6, 8}},
      {"key_bias", {8}},
      {"value_weight", {6, 8}},
      {"value_bias", {8}},
      {"out_weight", {8, 10}},
      {"out_bias", {10}},
      {"relative_bias", {3, 5, 3, 4}},
      {"attention_scale", {3, 5, 3, 4}},
  };
  std::map<std::string, std::vector<int64_t>> actual;
  for (const auto& item : layer->named_parameters()) {
    actual[item.key()] = item.value().sizes().vec();
    EXPECT_TRUE(item.value().requires_grad()) << item.key();
  }
  EXPECT_EQ(actual, expected);
  // What is switched off is no parameter.
  QnA few(QnAOptions{
      .in_features = 8, .relative_bias = false, .attention_scale = AttentionScale::kAverage});
  EXPECT_EQ(few->parameters().size(), 4u);
  EXPECT_FALSE(few->key_bias.defined() || few->relative_bias.defined() ||
               few->attention_scale.defined());
  QnA per_query(QnAOptions{.in_features = 8, .attention_scale = AttentionScale::kPerQuery});
  EXPECT_EQ(per_query->attention_scale.sizes(), at::IntArrayRef({2, 8}));
  // Every one of them gets a gradient.
  layer(torch::randn({1, 4, 4, 6})).square().sum().backward();
  for (const auto& item : layer->named_parameters()) {
    EXPECT_TRUE(item.value().grad().defined()) << item.key();
  }
}

}  // namespace
}  // namespace qna::nn
