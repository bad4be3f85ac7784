// Attention maps and kernels against plain loops written from the definition.
#include "qna/nn/attention_maps.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "qna/base/error.h"

namespace qna::nn {
namespace {

using torch::Tensor;

const auto kDouble = torch::TensorOptions(torch::kDouble);

// No parameter stays at a value that hides a mistake (zeros, ones).
template <typename Layer>
Layer random_double(Layer layer) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  layer->to(torch::kDouble);
  for (Tensor& parameter : layer->parameters()) parameter.normal_(0, 0.7);
  return layer;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

struct Plain {
  AttentionMaps maps;
  AttentionKernels kernels;
};

// Window by window, with keys as the paper has them.
Plain plain(const QnA& layer, const Tensor& x) {
  const torch::NoGradGuard no_grad;
  const QnAOptions& o = layer->options();
  const int64_t batch = x.size(0), height = x.size(1), width = x.size(2);
  const int64_t kh = o.kernel_size[0], kw = o.kernel_size[1], dim = o.features / o.heads;
  const auto [top, bottom, left, right] = *o.padding;
  const int64_t rows = (height + top + bottom - (kh - 1) * o.dilation[0] - 1) / o.stride[0] + 1;
  const int64_t columns = (width + left + right - (kw - 1) * o.dilation[1] - 1) / o.stride[1] + 1;

  Tensor keys = x.matmul(layer->key_weight);
  if (layer->key_bias.defined()) keys = keys + layer->key_bias;
  keys = keys.view({batch, height, width, o.heads, dim});
  Tensor queries = layer->query.view({o.queries, o.heads, dim});
  if (o.normalize_queries) queries = queries / (queries.norm(2, -1, true) + 1e-6);
  const Tensor scores =  // [B, H, W, L, heads]
      torch::einsum("byxhd,lhd->byxlh", {keys, queries}) / std::sqrt(static_cast<double>(dim));
  const Tensor scale = layer->parameters_for_layer().tap_weights.value_or(
      torch::ones({kh, kw, o.queries, o.heads}, kDouble));

  Plain out;
  out.maps.attention = torch::zeros({batch, o.queries, o.heads, height, width}, kDouble);
  out.maps.weight = torch::zeros({batch, o.heads, height, width}, kDouble);
  out.kernels.attention = torch::zeros({batch, o.queries, o.heads, rows, columns, kh, kw}, kDouble);
  out.kernels.weight = torch::zeros({batch, o.heads, rows, columns, kh, kw}, kDouble);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        const auto visit = [&](const auto& tap) {
          for (int64_t ty = 0; ty < kh; ++ty)
            for (int64_t tx = 0; tx < kw; ++tx) {
              const int64_t row = i * o.stride[0] - top + ty * o.dilation[0];
              const int64_t column = j * o.stride[1] - left + tx * o.dilation[1];
              if (row < 0 || row >= height || column < 0 || column >= width) continue;
              Tensor score = scores[b][row][column];  // [L, heads]
              if (layer->relative_bias.defined()) score = score + layer->relative_bias[ty][tx];
              tap(ty, tx, row, column, score.exp());
            }
        };
        Tensor sum = torch::zeros({o.queries, o.heads}, kDouble);
        visit([&](int64_t, int64_t, int64_t, int64_t, const Tensor& e) { sum += e; });
        visit([&](int64_t ty, int64_t tx, int64_t row, int64_t column, const Tensor& e) {
          using torch::indexing::Slice;
          const Tensor p = e / sum;
          const Tensor w = (p * scale[ty][tx]).sum(0);
          out.maps.attention.index({b, Slice(), Slice(), row, column}) += p;
          out.maps.weight.index({b, Slice(), row, column}) += w.abs();
          out.kernels.attention.index({b, Slice(), Slice(), i, j, ty, tx}) += p;
          out.kernels.weight.index({b, Slice(), i, j, ty, tx}) += w;
        });
      }
  return out;
}

struct Case {
  QnAOptions options;
  std::array<int64_t, 2> size;
};

std::vector<Case> cases() {
  const auto with = [](QnAOptions o) {
    o.in_features = 6;
    o.features = 8;
    o.heads = 2;
    return o;
  };
  return {
      {with({}), {5, 7}},
      {with({}), {1, 1}},  // most taps outside
      {with({.queries = 3, .kernel_size = {5, 5}}), {4, 9}},
      {with({.kernel_size = {4, 2}}), {6, 5}},  // even: padding on one side more
      {with({.stride = {2, 2}}), {7, 6}},
      {with({.stride = {3, 2}}), {8, 8}},
      {with({.kernel_size = {2, 2}, .stride = {3, 3}}), {8, 7}},  // places no window sees
      {with({.dilation = {2, 3}}), {7, 8}},
      {with({.padding = std::array<int64_t, 4>{0, 0, 0, 0}}), {5, 6}},
      {with({.padding = std::array<int64_t, 4>{4, 0, 1, 3}}), {4, 5}},  // windows without a tap
      {with({.relative_bias = false, .attention_scale = AttentionScale::kNone}), {4, 4}},
      {with({.attention_scale = AttentionScale::kSigned, .bias = true}), {4, 5}},
      {with({.normalize_queries = false, .attention_scale = AttentionScale::kPerQuery}), {4, 4}},
      {with({.upsample = 2}), {3, 4}},
  };
}

TEST(QnAAttention, MapsAndKernelsAreThoseOfTheDefinition) {
  for (const Case& c : cases()) {
    const QnA layer = random_double(QnA(c.options));
    const Tensor x = torch::randn({2, c.size[0], c.size[1], 6}, kDouble);
    SCOPED_TRACE(fmt::format("{}", fmt::join(c.size, " x ")));
    const Plain expected = plain(layer, x);
    const AttentionMaps maps = attention_maps(layer, x);
    EXPECT_LT(largest_difference(maps.attention, expected.maps.attention), 1e-12);
    EXPECT_LT(largest_difference(maps.weight, expected.maps.weight), 1e-12);
    const AttentionKernels kernels = attention_kernels(layer, x);
    EXPECT_LT(largest_difference(kernels.attention, expected.kernels.attention), 1e-12);
    EXPECT_LT(largest_difference(kernels.weight, expected.kernels.weight), 1e-12);
    for (const int64_t every : {2, 3, 100}) {
      const auto thinned = [&](const Tensor& all, int64_t axis) {
        return all.slice(axis, 0, std::nullopt, every).slice(axis + 1, 0, std::nullopt, every);
      };
      const AttentionKernels some = attention_kernels(layer, x, every);
      EXPECT_LT(largest_difference(some.attention, thinned(kernels.attention, 3)), 1e-12);
      EXPECT_LT(largest_difference(some.weight, thinned(kernels.weight, 2)), 1e-12);
    }
  }
}

TEST(QnAAttention, EveryWindowGivesOne) {
  for (const std::array<int64_t, 2> stride : {std::array<int64_t, 2>{1, 1}, {2, 2}, {2, 1}}) {
    torch::manual_seed(2);
    const QnA layer(QnAOptions{.in_features = 8, .heads = 4, .stride = stride});
    const Tensor x = torch::randn({1, 37, 50, 8});
    const int64_t windows = (36 / stride[0] + 1) * (49 / stride[1] + 1);
    const Tensor sums = attention_maps(layer, x).attention.sum({3, 4});
    EXPECT_LT((sums / windows - 1).abs().max().item<double>(), 1e-5);
  }
}

TEST(QnAAttention, ScoresOfAnySizeAreFine) {
  const QnA layer(QnAOptions{.in_features = 8, .heads = 2});
  const Tensor x = torch::randn({1, 9, 9, 8}) * 1e6;
  const Tensor map = attention_maps(layer, x).attention;
  EXPECT_TRUE(map.isfinite().all().item<bool>());
  EXPECT_NEAR(map.sum().item<double>(), 81 * 2 * 2, 1e-2);
}

// The kernels are what the layer sums its values with.
TEST(QnAAttention, KernelsGiveTheOutput) {
  const QnA layer = random_double(QnA(QnAOptions{.in_features = 6, .heads = 2}));
  const torch::NoGradGuard no_grad;
  const Tensor x = torch::randn({1, 6, 7, 6}, kDouble);
  const Tensor kernels = attention_kernels(layer, x).weight;  // [1, heads, 6, 7, 3, 3]
  const Tensor values = x.matmul(layer->value_weight).view({1, 6, 7, 2, 3});
  const Tensor around = torch::constant_pad_nd(values, {0, 0, 0, 0, 1, 1, 1, 1})
                            .unfold(1, 3, 1)
                            .unfold(2, 3, 1);  // [1, 6, 7, heads, dim, 3, 3]
  const Tensor mixed = torch::einsum("bhijyx,bijhdyx->bijhd", {kernels, around}).flatten(3);
  EXPECT_LT(largest_difference(mixed.matmul(layer->out_weight), QnA(layer)->forward(x)), 1e-12);
}

TEST(QnAAttention, Mistakes) {
  const QnA layer(QnAOptions{.in_features = 8, .heads = 2});
  EXPECT_THROW(attention_maps(layer, torch::randn({1, 4, 4, 6})), Error);
  EXPECT_THROW(attention_kernels(layer, torch::randn({1, 4, 4, 8}), 0), Error);
}

// Query by query: what each key of its window gets.
Tensor plain(const WindowSelfAttention& layer, const Tensor& x) {
  const torch::NoGradGuard no_grad;
  const auto& o = layer->options();
  const int64_t height = x.size(1), width = x.size(2), dim = o.features / o.heads;
  const Tensor qkv =
      torch::linear(x, layer->qkv->weight).view({x.size(0), height, width, 3, o.heads, dim});
  const auto window = layer->window_on(height, width);
  const Tensor table = layer->bias_for(window);  // by key minus query
  Tensor map = torch::zeros({x.size(0), o.heads, height, width}, kDouble);
  for (int64_t b = 0; b < x.size(0); ++b)
    for (int64_t h = 0; h < o.heads; ++h)
      for (int64_t qy = 0; qy < height; ++qy)
        for (int64_t qx = 0; qx < width; ++qx) {
          const int64_t top = qy / window[0] * window[0], left = qx / window[1] * window[1];
          const int64_t bottom = std::min(top + window[0], height);
          const int64_t right = std::min(left + window[1], width);
          Tensor e = torch::zeros({bottom - top, right - left}, kDouble);
          for (int64_t ky = top; ky < bottom; ++ky)
            for (int64_t kx = left; kx < right; ++kx) {
              const Tensor score = (qkv[b][qy][qx][0][h] * qkv[b][ky][kx][1][h]).sum() /
                                   std::sqrt(static_cast<double>(dim));
              const Tensor bias =
                  table[h][ky - qy + table.size(1) / 2][kx - qx + table.size(2) / 2];
              e[ky - top][kx - left] = (score + bias).exp();
            }
          map[b][h].slice(0, top, bottom).slice(1, left, right) += e / e.sum();
        }
  return map;
}

TEST(SelfAttention, MapIsThatOfTheDefinition) {
  for (const bool global : {false, true}) {
    const auto layer = random_double(WindowSelfAttention(
        WindowSelfAttentionOptions{.features = 6, .heads = 2, .window = {3, 4}, .global = global}));
    for (const std::array<int64_t, 2> size :
         {std::array<int64_t, 2>{6, 8}, {5, 7}, {2, 9}, {1, 1}}) {
      const Tensor x = torch::randn({2, size[0], size[1], 6}, kDouble);
      const Tensor map = attention_map(layer, x);
      EXPECT_LT(largest_difference(map, plain(layer, x)), 1e-12);
      // Every query gives one.
      EXPECT_LT((map.sum({2, 3}) - size[0] * size[1]).abs().max().item<double>(), 1e-10);
    }
  }
}

TEST(SelfAttention, Mistakes) {
  const WindowSelfAttention layer(WindowSelfAttentionOptions{.features = 6, .heads = 2});
  EXPECT_THROW(attention_map(layer, torch::randn({1, 4, 4, 5})), Error);
}

}  // namespace
}  // namespace qna::nn
