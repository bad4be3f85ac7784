// Self-attention in windows against plain loops, at the edges of the map, with masks and gradients.
#include "qna/nn/window_self_attention.h"
#include <torch/nn/functional/upsampling.h>

#include "qna/nn/mixer_testonly.h"

namespace qna::nn {
namespace {

namespace F = torch::nn::functional;
using namespace qna::nn::testing;

struct WindowSelfAttentionRow : MixerRow {
  using Layer = WindowSelfAttention;
  static constexpr double kSingle = 3e-6;  // sums of at most 63 terms
  // A window of one key: what would change its weight cancels.
  static constexpr double kLeastGradient = 0.1;

  static Tensor by_loops(const WindowSelfAttention& layer, const Tensor& x, const Tensor& mask) {
    const WindowSelfAttentionOptions& o = layer->options();
    const std::array<int64_t, 2> size = {x.size(1), x.size(2)};
    const std::array<int64_t, 2> window = o.global ? size : o.window;
    const Tensor table =
        o.global ? resize_relative_bias(layer->relative_bias, size) : layer->relative_bias;
    // Where the window begins that holds this place: perhaps before the map.
    const auto begin = [&](int64_t place, int axis) {
      const bool shifted = o.shift[axis] > 0 && size[axis] > window[axis];
      const int64_t first = shifted ? o.shift[axis] - window[axis] : 0;
      return (place - first) / window[axis] * window[axis] + first;
    };
    return attention_by_loops(layer, x, mask, size, table, [&](int64_t i, int64_t j) {
      Query query{i, j, {}};
      const int64_t top = begin(i, 0), left = begin(j, 1);
      for (int64_t y = top; y < std::min(top + window[0], size[0]); ++y)
        for (int64_t c = left; c < std::min(left + window[1], size[1]); ++c) {
          query.keys.push_back({y, c, i - y + table.size(0) / 2, j - c + table.size(1) / 2});
        }
      return query;
    });
  }

  // All of them by both methods.
  static std::vector<MixerCase<WindowSelfAttentionOptions>> cases() {
    const std::vector<MixerCase<WindowSelfAttentionOptions>> cases = {
        {"window divides the map", {.features = 8, .heads = 2, .window = {3, 3}}, 6, 9},
        {"window does not divide", {.features = 8, .heads = 2, .window = {3, 3}}, 7, 8},
        {"rectangular window", {.features = 6, .heads = 3, .window = {2, 5}}, 5, 7},
        {"window of one row", {.features = 6, .heads = 1, .window = {1, 4}}, 3, 6},
        {"window larger than the map", {.features = 8, .heads = 4, .window = {7, 7}}, 3, 5},
        {"window wider than the map", {.features = 8, .heads = 4, .window = {2, 7}}, 5, 4},
        {"map of one pixel", {.features = 4, .heads = 2, .window = {7, 7}}, 1, 1},
        {"window of one pixel", {.features = 4, .heads = 2, .window = {1, 1}}, 2, 3},
        {"global", {.features = 8, .heads = 2, .window = {4, 5}, .global = true}, 4, 5},
        {"global on a larger map",
         {.features = 8, .heads = 2, .window = {3, 2}, .global = true},
         5,
         7},
        {"global on a smaller map",
         {.features = 8, .heads = 2, .window = {5, 6}, .global = true},
         2,
         3},
        {"shift", {.features = 8, .heads = 2, .window = {4, 4}, .shift = {2, 2}}, 8, 12},
        {"shift, window does not divide",
         {.features = 8, .heads = 2, .window = {4, 3}, .shift = {1, 2}},
         9,
         8},
        {"shift, both tiles cut",
         {.features = 8, .heads = 2, .window = {7, 7}, .shift = {4, 4}},
         8,
         8},
        {"shift of rows", {.features = 6, .heads = 3, .window = {3, 3}, .shift = {2, 0}}, 7, 5},
        {"shift of columns", {.features = 6, .heads = 3, .window = {3, 3}, .shift = {0, 1}}, 7, 5},
        {"shift, map as large as the window",
         {.features = 8, .heads = 2, .window = {4, 4}, .shift = {2, 2}},
         4,
         4},
        {"shift along one axis of a low map",
         {.features = 8, .heads = 2, .window = {5, 5}, .shift = {2, 2}},
         3,
         11},
    };
    return with_variants(cases, [](MixerCase<WindowSelfAttentionOptions>& c) {
      c.what += ", by LibTorch";
      c.options.method = AttentionMethod::kSdpa;
    });
  }

  static std::vector<MixerMistake<WindowSelfAttentionOptions>> mistakes() {
    return {
        {{.features = 0}, {"features", "at least 1", "got 0"}},
        {{.features = 8, .heads = 3}, {"heads", "divide", "8", "got 3"}},
        {{.features = 8, .heads = 0}, {"heads", "got 0"}},
        {{.features = 8, .window = {0, 7}}, {"window", "got 0 x 7"}},
        {{.features = 8, .window = {4, 4}, .shift = {2, 4}}, {"shift", "4 x 4", "got 2 x 4"}},
        {{.features = 8, .global = true, .shift = {1, 1}}, {"whole map", "shift", "got 1 x 1"}}};
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(WindowSelfAttention, MixerSweep, WindowSelfAttentionRow);

WindowSelfAttention make(const WindowSelfAttentionOptions& options, at::ScalarType type) {
  return randomized(WindowSelfAttention(options), type);
}

// As Swin defines the shift: the map is rolled, and what came together from opposite edges does not
// attend to each other.
TEST(WindowSelfAttention, SwinsShift) {
  torch::manual_seed(29);
  constexpr int64_t kWindow = 4, kShift = 2, kHeads = 2, kDim = 3, kHeight = 8, kWidth = 12;
  for (const auto method : {AttentionMethod::kFused, AttentionMethod::kSdpa}) {
    const WindowSelfAttentionOptions plain{
        .features = kHeads * kDim, .heads = kHeads, .window = {kWindow, kWindow}, .method = method};
    WindowSelfAttentionOptions shifted = plain;
    shifted.shift = {kShift, kShift};
    WindowSelfAttention layer = make(shifted, torch::kDouble);
    const Tensor x = torch::randn({1, kHeight, kWidth, kHeads * kDim}, torch::kDouble);
    // The region of a pixel of the rolled map, along one axis.
    const auto region = [](int64_t place, int64_t size) {
      return place < size - kWindow ? 0 : place < size - kShift ? 1 : 2;
    };
    const Tensor rolled = torch::roll(x, {-kShift, -kShift}, {1, 2});
    Tensor expected = torch::empty_like(x);
    WindowSelfAttention unshifted = make(plain, torch::kDouble);
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < layer->parameters().size(); ++i) {
      unshifted->parameters()[i].copy_(layer->parameters()[i]);
    }
    for (int row = 0; row < 3; ++row) {
      for (int column = 0; column < 3; ++column) {
        Tensor mask = torch::zeros({1, kHeight, kWidth}, torch::kBool);
        for (int64_t i = 0; i < kHeight; ++i) {
          for (int64_t j = 0; j < kWidth; ++j) {
            mask[0][i][j] = region(i, kHeight) == row && region(j, kWidth) == column;
          }
        }
        expected = torch::where(mask.unsqueeze(-1), unshifted(rolled, mask), expected);
      }
    }
    EXPECT_TRUE(near(layer(x), torch::roll(expected, {kShift, kShift}, {1, 2}), 1e-12));
  }
}

TEST(WindowSelfAttention, EdgeWindowsStandAlone) {
  torch::manual_seed(22);
  WindowSelfAttention layer = make({.features = 8, .heads = 2, .window = {3, 4}}, torch::kDouble);
  const Tensor x = torch::randn({2, 7, 10, 8}, torch::kDouble);
  const Tensor y = layer(x);
  for (int64_t top = 0; top < 7; top += 3) {
    for (int64_t left = 0; left < 10; left += 4) {
      const auto window = [&](const Tensor& map) {
        return map.slice(1, top, std::min<int64_t>(top + 3, 7))
            .slice(2, left, std::min<int64_t>(left + 4, 10));
      };
      EXPECT_TRUE(near(window(y), layer(window(x).contiguous()), 1e-12)) << top << " " << left;
    }
  }
}

TEST(WindowSelfAttention, ExplicitPaddingAndMask) {
  torch::manual_seed(23);
  WindowSelfAttention layer = make({.features = 8, .heads = 2, .window = {3, 4}}, torch::kDouble);
  expect_same_on_canvas(layer, torch::randn({2, 7, 10, 8}, torch::kDouble), 2, 2);
}

TEST(WindowSelfAttention, WindowWithoutKeys) {
  torch::manual_seed(26);
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    for (const int n : {0, 1, 2, 3}) {
      const bool global = n % 2 == 1;
      const auto method = n < 2 ? AttentionMethod::kFused : AttentionMethod::kSdpa;
      WindowSelfAttention layer = make(
          {.features = 8, .heads = 2, .window = {2, 3}, .global = global, .method = method}, type);
      const Tensor x = torch::randn({2, 5, 5, 8}).to(type).requires_grad_();
      Tensor mask = torch::ones({2, 5, 5}, torch::kBool);
      mask[0].fill_(false);
      mask[1].slice(0, 0, 2).slice(1, 0, 3).fill_(false);
      const Tensor y = layer(x, mask);
      EXPECT_TRUE(y.isfinite().all().item<bool>());
      EXPECT_EQ(y[0].abs().max().item<double>(), 0);
      y.sum().backward();
      EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
      EXPECT_TRUE(layer->qkv->weight.grad().isfinite().all().item<bool>());
    }
  }
}

// Over the whole map: an image that fills only a part of the map is attended to as it is alone,
// with the table resized to that part.
TEST(WindowSelfAttention, GlobalOnPartOfTheMap) {
  torch::manual_seed(27);
  WindowSelfAttention layer =
      make({.features = 8, .heads = 2, .window = {3, 4}, .global = true}, torch::kDouble);
  const Tensor x = torch::randn({3, 6, 7, 8}, torch::kDouble);
  const std::array<int64_t, 2> sizes[] = {{4, 5}, {6, 7}, {1, 3}};
  Tensor mask = torch::zeros({3, 6, 7}, torch::kBool);
  for (int64_t i = 0; i < 3; ++i)
    mask[i].slice(0, 0, sizes[i][0]).slice(1, 0, sizes[i][1]).fill_(true);
  const Tensor y = layer(x, mask);
  for (int64_t i = 0; i < 3; ++i) {
    const auto part = [&](const Tensor& map) {
      return map.slice(0, i, i + 1).slice(1, 0, sizes[i][0]).slice(2, 0, sizes[i][1]);
    };
    EXPECT_TRUE(near(part(y), layer(part(x).contiguous()), 1e-12)) << i;
  }
}

TEST(ResizeRelativeBias, SameSizeIsTheSame) {
  const Tensor table = torch::randn({5, 9, 3});
  EXPECT_TRUE(resize_relative_bias(table, {3, 5}).is_same(table));
}

TEST(ResizeRelativeBias, BicubicByTorch) {
  torch::manual_seed(28);
  const Tensor table = torch::randn({5, 9, 3}, torch::kDouble);
  for (const std::array<int64_t, 2> window :
       std::vector<std::array<int64_t, 2>>{{7, 7}, {3, 4}, {2, 5}, {1, 1}, {12, 3}}) {
    const Tensor resized = resize_relative_bias(table, window);
    const std::vector<int64_t> size = {2 * window[0] - 1, 2 * window[1] - 1};
    ASSERT_EQ(resized.sizes(), at::IntArrayRef({size[0], size[1], 3}));
    for (int64_t head = 0; head < 3; ++head) {
      const Tensor plane = F::interpolate(
          table.select(2, head).unsqueeze(0).unsqueeze(0),
          F::InterpolateFuncOptions().size(size).mode(torch::kBicubic).align_corners(false));
      EXPECT_TRUE(near(resized.select(2, head), plane[0][0], 1e-14));
    }
  }
  // A constant stays that constant, and the table's symmetry stays.
  EXPECT_TRUE(near(resize_relative_bias(torch::full({3, 3, 2}, 4.5), {5, 6}),
                   torch::full({9, 11, 2}, 4.5), 1e-6));
  const Tensor even = table + table.flip({0, 1});
  const Tensor resized = resize_relative_bias(even, {6, 4});
  EXPECT_TRUE(near(resized, resized.flip({0, 1}), 1e-12));
}

}  // namespace
}  // namespace qna::nn
