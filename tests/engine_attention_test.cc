// Where the engine's networks look, against plain loops written from the definition.
#include <gtest/gtest.h>

#include <cmath>

#include "qna/base/error.h"
#include "qna/checkpoint/model_file.h"
#include "qna/config/registry.h"
#include "tests/engine_and_torch.h"
#include "tests/support/random_config.h"

namespace qna::testing {
namespace {

using engine::AttentionLayer;
using engine::LayerAttention;
using models::QnAViT;
using torch::indexing::Slice;

// What a layer should show; `weight` and the kernels are undefined for self-attention.
struct Expected {
  Tensor attention;         // [B, L, heads, H, W]
  Tensor weight;            // [B, heads, H, W]
  Tensor kernel_attention;  // [B, L, heads, rows, columns, kh, kw]
  Tensor kernel_weight;     // [B, heads, rows, columns, kh, kw]
};

// Window by window, with keys as the paper has them. bias, scale: [kh, kw, L, heads].
Expected plain(const nn::QnA& layer, const Tensor& x, const Tensor& bias, const Tensor& scale) {
  const nn::QnAOptions& o = layer->options();
  const int64_t batch = x.size(0), height = x.size(1), width = x.size(2);
  const int64_t kh = bias.size(0), kw = bias.size(1), dim = o.features / o.heads;
  const auto [top, bottom, left, right] = *o.padding;
  const int64_t rows = (height + top + bottom - kh) / o.stride[0] + 1;
  const int64_t columns = (width + left + right - kw) / o.stride[1] + 1;
  const Tensor keys = x.matmul(layer->key_weight).view({batch, height, width, o.heads, dim});
  Tensor queries = layer->query.view({o.queries, o.heads, dim});
  if (o.normalize_queries) queries = queries / (queries.norm(2, -1, true) + 1e-6);
  const Tensor scores =  // [B, H, W, L, heads]
      torch::einsum("byxhd,lhd->byxlh", {keys, queries}) / std::sqrt(static_cast<double>(dim));
  const auto zeros = [&](at::IntArrayRef sizes) { return torch::zeros(sizes, torch::kDouble); };
  Expected out{zeros({batch, o.queries, o.heads, height, width}),
               zeros({batch, o.heads, height, width}),
               zeros({batch, o.queries, o.heads, rows, columns, kh, kw}),
               zeros({batch, o.heads, rows, columns, kh, kw})};
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const auto visit = [&](const auto& tap) {
        for (int64_t ty = 0; ty < kh; ++ty)
          for (int64_t tx = 0; tx < kw; ++tx) {
            const int64_t row = i * o.stride[0] - top + ty, column = j * o.stride[1] - left + tx;
            if (row < 0 || row >= height || column < 0 || column >= width) continue;
            tap(ty, tx, row, column,
                (scores.index({Slice(), row, column}) + bias[ty][tx]).exp());  // [B, L, heads]
          }
      };
      Tensor sum = zeros({batch, o.queries, o.heads});
      visit([&](int64_t, int64_t, int64_t, int64_t, const Tensor& e) { sum += e; });
      visit([&](int64_t ty, int64_t tx, int64_t row, int64_t column, const Tensor& e) {
        const Tensor p = e / sum;
        const Tensor w = (p * scale[ty][tx]).sum(1);
        out.attention.index({Slice(), Slice(), Slice(), row, column}) += p;
        out.weight.index({Slice(), Slice(), row, column}) += w.abs();
        out.kernel_attention.index({Slice(), Slice(), Slice(), i, j, ty, tx}) += p;
        out.kernel_weight.index({Slice(), Slice(), i, j, ty, tx}) += w;
      });
    }
  return out;
}

// Query by query: what each key of its window gets.
Expected plain(const nn::WindowSelfAttention& layer, const Tensor& x) {
  const auto& o = layer->options();
  const int64_t batch = x.size(0), height = x.size(1), width = x.size(2);
  const int64_t dim = o.features / o.heads;
  const Tensor qkv =
      torch::linear(x, layer->qkv->weight).view({batch, height, width, 3, o.heads, dim});
  const std::array<int64_t, 2> window = o.global ? std::array{height, width} : o.window;
  const Tensor table = o.global ? nn::resize_relative_bias(layer->relative_bias, window)
                                : layer->relative_bias;  // by query minus key
  Tensor map = torch::zeros({batch, o.heads, height, width}, torch::kDouble);
  for (int64_t qy = 0; qy < height; ++qy)
    for (int64_t qx = 0; qx < width; ++qx) {
      const int64_t top = qy / window[0] * window[0], left = qx / window[1] * window[1];
      const int64_t bottom = std::min(top + window[0], height);
      const int64_t right = std::min(left + window[1], width);
      Tensor e = torch::zeros({batch, o.heads, bottom - top, right - left}, torch::kDouble);
      for (int64_t ky = top; ky < bottom; ++ky)
        for (int64_t kx = left; kx < right; ++kx) {
          const auto at = [&](int64_t row, int64_t column, int64_t part) {
            return qkv.index({Slice(), row, column, part});  // [B, heads, dim]
          };
          const Tensor score =
              (at(qy, qx, 0) * at(ky, kx, 1)).sum(-1) / std::sqrt(static_cast<double>(dim));
          e.index_put_({Slice(), Slice(), ky - top, kx - left},
                       (score + table[qy - ky + window[0] - 1][qx - kx + window[1] - 1]).exp());
        }
      map.slice(2, top, bottom).slice(3, left, right) += e / e.sum({2, 3}, true);
    }
  return {map.unsqueeze(1), {}, {}, {}};
}

Expected plain(const nn::QnA& layer, const Tensor& x) {
  const ops::QnALayerParameters p = layer->parameters_for_layer();
  const Tensor ones = torch::ones_like(*p.bias);
  return plain(layer, x, layer->relative_bias, p.tap_weights.value_or(ones));
}

Expected plain(nn::Block& block, const Tensor& x) {
  const Tensor normed = block->norm1->forward(x);
  return block->qna ? plain(block->qna, normed) : plain(block->attention, normed);
}

Expected plain(const models::ClassificationHead& head, const Tensor& x) {
  models::ClassificationHead copy = head;
  const Tensor normed = copy->norm->forward(x);
  const std::array<int64_t, 2> size = {x.size(1), x.size(2)};
  const Tensor scale = models::resize_window_table(head->qna->attention_scale, size);
  return plain(head->qna, normed, models::resize_window_table(head->qna->relative_bias, size),
               scale);
}

// Of all layers that attend, by name.
std::map<std::string, Expected> expected_of(QnAViT& model, const Tensor& images) {
  std::map<std::string, Expected> all;
  const auto shown = [](const nn::Block& block) {
    return block->qna || (block->attention && !block->attention->options().shifted());
  };
  Tensor map = model->forward_stem(images);
  for (size_t i = 0; i < model->stages.size(); ++i) {
    models::Stage& stage = model->stages[i];
    for (size_t n = 0; n < stage->blocks.size(); ++n) {
      nn::Block& block = stage->blocks[n];
      if (shown(block)) all[fmt::format("stages.{}.blocks.{}", i, n)] = plain(block, map);
      map = block->forward(map);
    }
    if (stage->is_last()) break;
    nn::Block& down = stage->downsample;
    if (down && shown(down)) all[fmt::format("stages.{}.downsample", i)] = plain(down, map);
    map = stage->forward_downsample(map, {}, false);
  }
  if (model->head && model->head->qna) all["head"] = plain(model->head, map);
  return all;
}

struct Look : engine::Visitor {
  explicit Look(int64_t kernel_side) : side(kernel_side) {}
  int64_t side;
  std::vector<LayerAttention> found;
  bool wants_attention(const AttentionLayer&) override { return true; }
  int64_t kernel_side() override { return side; }
  void attention(LayerAttention&& seen) override { found.push_back(std::move(seen)); }
};

Tensor shaped(const std::vector<float>& numbers, at::IntArrayRef sizes) {
  return torch::tensor(numbers, torch::kFloat).view(sizes);
}

void expect_attention(const LayerAttention& seen, const Expected& expected, int64_t side) {
  const engine::AttentionMaps& m = seen.maps;
  EXPECT_TRUE(near(shaped(m.attention, {m.batch, m.queries, m.heads, m.height, m.width}),
                   expected.attention, kTolerance));
  EXPECT_EQ(seen.layer.learned_queries, expected.weight.defined());
  if (!expected.weight.defined()) {
    EXPECT_TRUE(m.weight.empty());
    EXPECT_TRUE(seen.kernels.attention.empty());
    return;
  }
  EXPECT_TRUE(
      near(shaped(m.weight, {m.batch, m.heads, m.height, m.width}), expected.weight, kTolerance));
  if (seen.layer.name == "head" || side == 0) return;  // one window: its map says all
  const engine::AttentionKernels& k = seen.kernels;
  int64_t every = 1;
  for (const int axis : {3, 4}) {
    const int64_t weights =
        expected.kernel_attention.size(axis) * expected.kernel_attention.size(axis + 2);
    every = std::max(every, (weights + side - 1) / side);
  }
  EXPECT_EQ(k.every, every);
  const auto thinned = [&](const Tensor& all, int64_t axis) {
    return all.slice(axis, 0, std::nullopt, every).slice(axis + 1, 0, std::nullopt, every);
  };
  EXPECT_TRUE(near(
      shaped(k.attention, {m.batch, m.queries, m.heads, k.rows, k.columns, k.kernel_h, k.kernel_w}),
      thinned(expected.kernel_attention, 3), kTolerance));
  EXPECT_TRUE(near(shaped(k.weight, {m.batch, m.heads, k.rows, k.columns, k.kernel_h, k.kernel_w}),
                   thinned(expected.kernel_weight, 2), kTolerance));
}

void expect_attention(const config::QnAViTConfig& config, at::IntArrayRef sizes, int64_t side,
                      uint64_t seed) {
  const torch::NoGradGuard no_grad;
  QnAViT model = random_model<QnAViT>(config, seed);
  const Tensor x = torch::randn(sizes);
  const engine::Model served = checkpoint::serving_model(model, info_for(sizes[3]));
  QnAViT exact = exact_copy(model);
  const std::map<std::string, Expected> expected = expected_of(exact, x.to(torch::kDouble));
  Look look(side);
  engine::Context context(2);
  served.classify(images_of(x), nullptr, context, &look);
  ASSERT_EQ(look.found.size(), expected.size());
  const std::vector<AttentionLayer> layers = served.attention_layers();
  ASSERT_EQ(layers.size(), expected.size());
  for (size_t i = 0; i < look.found.size(); ++i) {
    const std::string& name = look.found[i].layer.name;
    SCOPED_TRACE(name);
    EXPECT_EQ(layers[i].name, name);
    ASSERT_TRUE(expected.contains(name));
    expect_attention(look.found[i], expected.at(name), side);
  }
}

TEST(EngineAttention, MapsAndKernelsAreThoseOfTheDefinition) {
  RandomConfig random(19);
  for (int n = 0; n < 60; ++n) {
    config::QnAViTConfig config = random.qna_vit();
    config.downsample = random.coin() ? config::Downsample::kQnA : config.downsample;
    const std::vector<int64_t> sizes = {random.pick(1, 2), random.pick(1, 30), random.pick(1, 30),
                                        config.in_channels};
    const int64_t side = random.pick(0, 2) * 9;
    SCOPED_TRACE(fmt::format("number {}: {} images of {} x {}, kernels {}\n{}", n, sizes[0],
                             sizes[1], sizes[2], side, config::to_toml(config)));
    expect_attention(config, sizes, side, n);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(EngineAttention, TheSmallestOfTheList) {
  config::QnAViTConfig config = config::find_model("qna_vit_pico").config;
  config.head = config::HeadKind::kQnAv2;
  expect_attention(config, {2, 37, 50, 3}, 24, 1);
}

// Whatever the scores, every window gives one.
TEST(EngineAttention, LargeScores) {
  const torch::NoGradGuard no_grad;
  QnAViT model = random_model<QnAViT>(
      config::QnAViTConfig{.classes = 0, .base_dim = 8, .stages = {{.qna_blocks = 1}}}, 2);
  model->stages[0]->blocks[0]->qna->key_weight.mul_(1e6);
  const engine::Model served = checkpoint::serving_model(model, info_for(3));
  const Tensor x = torch::randn({1, 36, 36, 3});
  Look look(0);
  engine::Context context(1);
  served.classify(images_of(x), nullptr, context, &look);
  ASSERT_EQ(look.found.size(), 1);
  double sum = 0;
  for (const float value : look.found[0].maps.attention) {
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
  }
  EXPECT_NEAR(sum, 81 * 2 * 8, 1e-2);  // windows, queries, heads
}

}  // namespace
}  // namespace qna::testing
