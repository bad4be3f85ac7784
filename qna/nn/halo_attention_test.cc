// HaloNet's attention against plain loops: blocks, halos, strides, edges, masks, gradients.
#include "qna/nn/halo_attention.h"

#include "qna/nn/mixer_testonly.h"

namespace qna::nn {
namespace {

using namespace qna::nn::testing;
using ops::testing::expect_complaint;
using ops::testing::near;

// The definition, in double.
Tensor by_loops(const HaloAttention& layer, const Tensor& x, const Tensor& mask) {
  torch::NoGradGuard no_grad;
  const HaloAttentionOptions& o = layer->options();
  const auto halo = layer->options().halo();
  const int64_t batch = x.size(0), height = x.size(1), width = x.size(2);
  const int64_t dim = o.out_features / o.heads;
  const Tensor map = at_valid(x, mask).to(torch::kDouble);
  const Tensor qkv = torch::matmul(map, layer->qkv->weight.to(torch::kDouble).t())
                         .view({batch, height, width, 3, o.heads, dim});
  const Tensor table = layer->relative_bias.to(torch::kDouble);
  const int64_t rows = (height - 1) / o.stride[0] + 1, columns = (width - 1) / o.stride[1] + 1;
  Tensor mixed = torch::zeros({batch, rows, columns, o.heads, dim}, torch::kDouble);
  const auto part = qkv.accessor<double, 6>();
  const auto bias = table.accessor<double, 3>();
  auto out = mixed.accessor<double, 5>();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        for (int64_t h = 0; h < o.heads; ++h) {
          const int64_t y = i * o.stride[0], c = j * o.stride[1];
          const int64_t top = y / o.block[0] * o.block[0] - halo[0];
          const int64_t left = c / o.block[1] * o.block[1] - halo[1];
          double sum = 0;
          for (int64_t ky = top; ky < top + o.block[0] + 2 * halo[0]; ++ky)
            for (int64_t kx = left; kx < left + o.block[1] + 2 * halo[1]; ++kx) {
              if (ky < 0 || ky >= height || kx < 0 || kx >= width) continue;
              if (mask.defined() && !mask[b][ky][kx].item<bool>()) continue;
              double score = bias[ky - y + o.block[0] - o.stride[0] + halo[0]]
                                 [kx - c + o.block[1] - o.stride[1] + halo[1]][h];
              for (int64_t d = 0; d < dim; ++d) {
                score += part[b][y][c][0][h][d] * part[b][ky][kx][1][h][d] / std::sqrt(dim);
              }
              const double weight = std::exp(score);
              sum += weight;
              for (int64_t d = 0; d < dim; ++d) {
                out[b][i][j][h][d] += weight * part[b][ky][kx][2][h][d];
              }
            }
          for (int64_t d = 0; d < dim && sum > 0; ++d) out[b][i][j][h][d] /= sum;
        }
  return torch::matmul(mixed.flatten(3), layer->proj->weight.to(torch::kDouble).t());
}

struct HaloCase {
  const char* what;
  HaloAttentionOptions options;
  int64_t height, width;
};

const HaloCase kHaloCases[] = {
    {"whole blocks", {.in_features = 8, .heads = 2, .block = {3, 3}}, 9, 12},
    {"cut blocks", {.in_features = 8, .heads = 2, .block = {3, 4}}, 10, 9},
    {"default block on a small map", {.in_features = 8, .heads = 4}, 5, 3},
    {"default block, 7 x 7", {.in_features = 6, .heads = 2, .kernel_size = {7, 7}}, 17, 20},
    {"halo larger than the block",
     {.in_features = 4, .heads = 2, .kernel_size = {9, 7}, .block = {2, 2}},
     11,
     8},
    {"even window", {.in_features = 4, .heads = 1, .kernel_size = {4, 2}, .block = {2, 3}}, 5, 7},
    {"no halo", {.in_features = 4, .heads = 2, .kernel_size = {1, 1}, .block = {2, 2}}, 5, 4},
    {"one pixel", {.in_features = 4, .heads = 2}, 1, 1},
    {"stride 2",
     {.in_features = 6, .out_features = 12, .heads = 4, .block = {4, 4}, .stride = {2, 2}},
     8,
     12},
    {"stride 2, odd map",
     {.in_features = 6, .out_features = 8, .block = {4, 4}, .stride = {2, 2}},
     11,
     7},
    {"stride 3 x 1",
     {.in_features = 4, .heads = 2, .kernel_size = {5, 5}, .block = {6, 2}, .stride = {3, 1}},
     13,
     5},
};

TEST(HaloAttention, PlainLoops) {
  torch::manual_seed(81);
  for (const HaloCase& c : kHaloCases) {
    SCOPED_TRACE(c.what);
    HaloAttention layer = randomized(HaloAttention(c.options), torch::kDouble);
    const Tensor x = torch::randn({2, c.height, c.width, c.options.in_features}, torch::kDouble);
    const Tensor mask = random_mask(2, c.height, c.width);
    // float64: rounding of sums of some hundred terms, far below 1e-12.
    EXPECT_TRUE(near(layer(x), by_loops(layer, x, {}), 1e-12));
    EXPECT_TRUE(near(layer(x, mask), by_loops(layer, x, mask), 1e-12));
    // float32 rounds at 6e-8; sums of at most 196 terms.
    layer->to(torch::kFloat);
    const Tensor single = x.to(torch::kFloat);
    torch::NoGradGuard no_grad;  // LibTorch's fused attention
    EXPECT_TRUE(near(layer(single), by_loops(layer, single, {}), 5e-6));
    EXPECT_TRUE(near(layer(single, mask), by_loops(layer, single, mask), 5e-6));
  }
}

TEST(HaloAttention, Gradients) {
  torch::manual_seed(82);
  for (const HaloCase& c : kHaloCases) {
    for (const bool with_mask : {false, true}) {
      SCOPED_TRACE(::testing::Message() << c.what << (with_mask ? ", mask" : ""));
      HaloAttention layer = randomized(HaloAttention(c.options), torch::kDouble);
      Tensor x = torch::randn({2, c.height, c.width, c.options.in_features}, torch::kDouble);
      const Tensor mask = with_mask ? random_mask(2, c.height, c.width) : Tensor();
      expect_gradients(layer, x, [&] { return layer(x, mask); });
    }
  }
}

TEST(HaloAttention, Masks) {
  torch::manual_seed(83);
  for (const HaloCase& c : kHaloCases) {
    SCOPED_TRACE(c.what);
    HaloAttention layer = randomized(HaloAttention(c.options), torch::kFloat);
    const Tensor x = torch::randn({2, c.height, c.width, c.options.in_features});
    expect_no_influence_of_masked(layer, x, random_mask(2, c.height, c.width));
    EXPECT_EQ(
        layer(x, torch::zeros({2, c.height, c.width}, torch::kBool)).abs().max().item<double>(), 0);
    layer->to(torch::kDouble);
    expect_same_on_canvas(layer, x.to(torch::kDouble));
  }
}

TEST(HaloAttention, UsualManners) {
  torch::manual_seed(84);
  for (const HaloCase& c : kHaloCases) {
    SCOPED_TRACE(c.what);
    HaloAttention layer = randomized(HaloAttention(c.options), torch::kFloat);
    expect_usual_manners(layer, torch::randn({2, c.height, c.width, c.options.in_features}));
  }
}

// Every pixel has one query, and tiles of one kind stand together.
TEST(TileSpans, CoverTheMap) {
  for (int64_t size = 1; size < 40; ++size) {
    for (const TileGeometry& g :
         {TileGeometry{.block = 8, .halo = 1}, TileGeometry{.block = 4, .halo = 9},
          TileGeometry{.block = 7, .shift = 3}, TileGeometry{.block = 1},
          TileGeometry{.block = 6, .halo = 2, .stride = 3}}) {
      int64_t queries = 0;
      const auto spans = tile_spans(size, g);
      for (const TileSpan& span : spans) {
        EXPECT_EQ(span.first_query, queries);
        queries += span.tiles * span.queries;
        EXPECT_GE(span.first_key, 0);
        EXPECT_LE(span.first_key + (span.tiles - 1) * g.block + span.keys, size);
      }
      EXPECT_EQ(queries, (size + g.stride - 1) / g.stride);
      if (g.halo < g.block) {
        EXPECT_LE(spans.size(), 4u);
      }
    }
  }
}

TEST(HaloAttention, WrongArguments) {
  const auto wrong = [](const HaloAttentionOptions& options,
                        std::initializer_list<const char*> words) {
    expect_complaint([&] { HaloAttention layer(options); }, words);
  };
  wrong({}, {"HaloAttention", "in_features", "got 0"});
  wrong({.in_features = 8, .out_features = -1}, {"out_features", "got -1"});
  wrong({.in_features = 8, .heads = 3}, {"heads", "divide", "8", "got 3"});
  wrong({.in_features = 8, .kernel_size = {0, 3}}, {"kernel_size", "height", "got 0"});
  wrong({.in_features = 8, .block = {8, 0}}, {"block", "width", "got 0"});
  wrong({.in_features = 8, .stride = {1, 0}}, {"stride", "width", "got 0"});
  wrong({.in_features = 8, .stride = {3, 2}}, {"stride", "divide block", "8 x 8", "got 3 x 2"});
  HaloAttention layer(HaloAttentionOptions{.in_features = 8});
  expect_complaint([&] { layer(torch::randn({1, 5, 5, 7})); }, {"x", "8", "[1, 5, 5, 7]"});
  expect_complaint([&] { layer(torch::randn({1, 5, 5, 8}), torch::ones({1, 5, 5})); }, {"mask"});
}

}  // namespace
}  // namespace qna::nn
