// Self-attention in windows against plain loops, at the edges of the map, with masks and gradients.
#include "qna/nn/window_self_attention.h"
#include <torch/nn/functional/upsampling.h>

#include "qna/nn/mixer_testonly.h"

namespace qna::nn {
namespace {

namespace F = torch::nn::functional;
using namespace qna::nn::testing;
using ops::testing::expect_complaint;
using ops::testing::near;

WindowSelfAttention make(const WindowSelfAttentionOptions& options, at::ScalarType type) {
  WindowSelfAttention layer(options);
  torch::NoGradGuard no_grad;
  layer->relative_bias.normal_();
  layer->to(type);
  return layer;
}

// The definition, on a map padded to whole windows with what was added masked: in double.
Tensor by_loops(const WindowSelfAttention& layer, const Tensor& x, const Tensor& mask) {
  torch::NoGradGuard no_grad;
  const WindowSelfAttentionOptions& o = layer->options();
  const int64_t batch = x.size(0), height = x.size(1), width = x.size(2);
  const int64_t wh = o.global ? height : o.window[0];
  const int64_t ww = o.global ? width : o.window[1];
  // Where the windows begin: at or before the map.
  const auto begin = [](int64_t size, int64_t window, int64_t shift) {
    return shift > 0 && size > window ? shift - window : 0;
  };
  const int64_t first_y = begin(height, wh, o.shift[0]), first_x = begin(width, ww, o.shift[1]);
  const int64_t rows = (height + wh - 1) / wh * wh, columns = (width + ww - 1) / ww * ww;
  const int64_t dim = o.features / o.heads;
  const double scale = 1 / std::sqrt(static_cast<double>(dim));

  Tensor padded = torch::zeros({batch, rows, columns, o.features}, torch::kDouble);
  padded.slice(1, 0, height).slice(2, 0, width).copy_(x);
  Tensor keys = torch::zeros({batch, rows, columns}, torch::kBool);
  keys.slice(1, 0, height)
      .slice(2, 0, width)
      .copy_(mask.defined() ? mask : torch::ones({batch, height, width}, torch::kBool));
  const Tensor qkv = torch::matmul(padded, layer->qkv->weight.to(torch::kDouble).t())
                         .view({batch, rows, columns, 3, o.heads, dim});
  Tensor table = layer->relative_bias.to(torch::kDouble);
  if (o.global) table = resize_relative_bias(table, {height, width});
  const int64_t table_h = table.size(0) / 2, table_w = table.size(1) / 2;  // where offset 0 lies

  Tensor mixed = torch::zeros({batch, rows, columns, o.heads, dim}, torch::kDouble);
  const auto part = qkv.accessor<double, 6>();
  const auto taking = keys.accessor<bool, 3>();
  const auto bias = table.accessor<double, 3>();
  auto out = mixed.accessor<double, 5>();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t y = 0; y < rows; ++y)
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t h = 0; h < o.heads; ++h) {
          const int64_t top = (y - first_y) / wh * wh + first_y;
          const int64_t left = (c - first_x) / ww * ww + first_x;
          double sum = 0;
          for (int64_t ky = std::max<int64_t>(top, 0); ky < std::min(top + wh, rows); ++ky)
            for (int64_t kx = std::max<int64_t>(left, 0); kx < std::min(left + ww, columns); ++kx) {
              if (!taking[b][ky][kx]) continue;
              double score = bias[y - ky + table_h][c - kx + table_w][h];
              for (int64_t d = 0; d < dim; ++d) {
                score += scale * part[b][y][c][0][h][d] * part[b][ky][kx][1][h][d];
              }
              const double weight = std::exp(score);
              sum += weight;
              for (int64_t d = 0; d < dim; ++d) {
                out[b][y][c][h][d] += weight * part[b][ky][kx][2][h][d];
              }
            }
          for (int64_t d = 0; d < dim && sum > 0; ++d) out[b][y][c][h][d] /= sum;
        }
  return torch::matmul(mixed.flatten(3), layer->proj->weight.to(torch::kDouble).t())
      .slice(1, 0, height)
      .slice(2, 0, width);
}

struct WindowCase {
  const char* what;
  WindowSelfAttentionOptions options;
  int64_t height, width;
};

const WindowCase kPlainCases[] = {
    {"window divides the map", {.features = 8, .heads = 2, .window = {3, 3}}, 6, 9},
    {"window does not divide", {.features = 8, .heads = 2, .window = {3, 3}}, 7, 8},
    {"rectangular window", {.features = 6, .heads = 3, .window = {2, 5}}, 5, 7},
    {"window of one row", {.features = 6, .heads = 1, .window = {1, 4}}, 3, 6},
    {"window larger than the map", {.features = 8, .heads = 4, .window = {7, 7}}, 3, 5},
    {"window wider than the map", {.features = 8, .heads = 4, .window = {2, 7}}, 5, 4},
    {"map of one pixel", {.features = 4, .heads = 2, .window = {7, 7}}, 1, 1},
    {"window of one pixel", {.features = 4, .heads = 2, .window = {1, 1}}, 2, 3},
    {"global", {.features = 8, .heads = 2, .window = {4, 5}, .global = true}, 4, 5},
    {"global on a larger map", {.features = 8, .heads = 2, .window = {3, 2}, .global = true}, 5, 7},
    {"global on a smaller map",
     {.features = 8, .heads = 2, .window = {5, 6}, .global = true},
     2,
     3},
    {"shift", {.features = 8, .heads = 2, .window = {4, 4}, .shift = {2, 2}}, 8, 12},
    {"shift, window does not divide",
     {.features = 8, .heads = 2, .window = {4, 3}, .shift = {1, 2}},
     9,
     8},
    {"shift, both tiles cut", {.features = 8, .heads = 2, .window = {7, 7}, .shift = {4, 4}}, 8, 8},
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

// All of them by both methods.
std::vector<WindowCase> all_cases() {
  std::vector<WindowCase> cases(std::begin(kPlainCases), std::end(kPlainCases));
  for (const WindowCase& c : kPlainCases) {
    cases.push_back(c);
    cases.back().options.method = AttentionMethod::kSdpa;
  }
  return cases;
}
const std::vector<WindowCase> kWindowCases = all_cases();

TEST(WindowSelfAttention, PlainLoops) {
  torch::manual_seed(21);
  for (const WindowCase& c : kWindowCases) {
    SCOPED_TRACE(c.what);
    WindowSelfAttention layer = make(c.options, torch::kDouble);
    const Tensor x = torch::randn({2, c.height, c.width, c.options.features}, torch::kDouble);
    for (const bool with_mask : {false, true}) {
      const Tensor mask = with_mask ? random_mask(2, c.height, c.width) : Tensor();
      // float64: rounding of sums of some ten terms, far below 1e-12.
      EXPECT_TRUE(
          near(at_valid(layer(x, mask), mask), at_valid(by_loops(layer, x, mask), mask), 1e-12));
    }
    // float32 rounds at 6e-8; sums of at most 63 terms.
    layer->to(torch::kFloat);
    EXPECT_TRUE(near(layer(x.to(torch::kFloat)), by_loops(layer, x.to(torch::kFloat), {}), 3e-6));
  }
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

TEST(WindowSelfAttention, ShiftedImageOnACanvas) {
  torch::manual_seed(30);
  for (const WindowCase& c : kWindowCases) {
    SCOPED_TRACE(c.what);
    WindowSelfAttention layer = make(c.options, torch::kDouble);
    expect_same_on_canvas(layer,
                          torch::randn({2, c.height, c.width, c.options.features}, torch::kDouble));
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
  const Tensor x = torch::randn({2, 7, 10, 8}, torch::kDouble);
  const Tensor canvas = torch::randn({2, 9, 12, 8}, torch::kDouble);
  canvas.slice(1, 0, 7).slice(2, 0, 10).copy_(x);
  Tensor mask = torch::zeros({2, 9, 12}, torch::kBool);
  mask.slice(1, 0, 7).slice(2, 0, 10).fill_(true);
  EXPECT_TRUE(near(layer(canvas, mask).slice(1, 0, 7).slice(2, 0, 10), layer(x), 1e-12));
}

TEST(WindowSelfAttention, GradientsByFiniteDifferences) {
  torch::manual_seed(24);
  for (const WindowCase& c : kWindowCases) {
    for (const bool with_mask : {false, true}) {
      SCOPED_TRACE(::testing::Message() << c.what << (with_mask ? ", mask" : ""));
      WindowSelfAttention layer = make(c.options, torch::kDouble);
      Tensor x = torch::randn({2, c.height, c.width, c.options.features}, torch::kDouble);
      const Tensor mask = with_mask ? random_mask(2, c.height, c.width) : Tensor();
      expect_gradients(layer, x, [&] { return at_valid(layer(x, mask), mask); });
    }
  }
}

// Whatever stands at masked places, NaN too, changes nothing elsewhere, and gradients stay finite.
TEST(WindowSelfAttention, MaskedPlacesHaveNoInfluence) {
  torch::manual_seed(25);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const WindowCase& c : kWindowCases) {
    WindowSelfAttention layer = make(c.options, torch::kFloat);
    const Tensor x = torch::randn({2, c.height, c.width, c.options.features});
    const Tensor mask = random_mask(2, c.height, c.width);
    const Tensor expected = at_valid(layer(x, mask), mask).detach();
    for (const double garbage : {nan, infinity, 1e30, -1e30}) {
      SCOPED_TRACE(::testing::Message() << c.what << ", " << garbage);
      const Tensor dirty = x.masked_fill(~mask.unsqueeze(-1), garbage).requires_grad_();
      layer->zero_grad();
      const Tensor y = at_valid(layer(dirty, mask), mask);
      EXPECT_TRUE(torch::equal(y, expected));
      y.square().sum().backward();
      for (const auto& item : layer->named_parameters()) {
        EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
      }
      EXPECT_TRUE(dirty.grad().isfinite().all().item<bool>());
      EXPECT_EQ(at_valid(dirty.grad(), ~mask).abs().max().item<double>(), 0);
    }
  }
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

TEST(WindowSelfAttention, EmptyBatch) {
  WindowSelfAttention layer = make({.features = 8, .heads = 2}, torch::kFloat);
  EXPECT_EQ(layer(torch::randn({0, 5, 5, 8})).sizes(), at::IntArrayRef({0, 5, 5, 8}));
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

TEST(WindowSelfAttention, WrongArguments) {
  expect_complaint([] { WindowSelfAttention(WindowSelfAttentionOptions{.features = 0}); },
                   {"features", "at least 1", "got 0"});
  expect_complaint(
      [] { WindowSelfAttention(WindowSelfAttentionOptions{.features = 8, .heads = 3}); },
      {"heads", "divide", "8", "got 3"});
  expect_complaint(
      [] { WindowSelfAttention(WindowSelfAttentionOptions{.features = 8, .heads = 0}); },
      {"heads", "got 0"});
  expect_complaint(
      [] {
        WindowSelfAttention(WindowSelfAttentionOptions{.features = 8, .window = {0, 7}});
      },
      {"window", "got 0 x 7"});
  expect_complaint(
      [] {
        WindowSelfAttention(
            WindowSelfAttentionOptions{.features = 8, .window = {4, 4}, .shift = {2, 4}});
      },
      {"shift", "4 x 4", "got 2 x 4"});
  expect_complaint(
      [] {
        WindowSelfAttention(
            WindowSelfAttentionOptions{.features = 8, .global = true, .shift = {1, 1}});
      },
      {"whole map", "shift", "got 1 x 1"});
  WindowSelfAttention layer(WindowSelfAttentionOptions{.features = 8, .heads = 2});
  expect_complaint([&] { layer(torch::randn({1, 5, 5, 7})); }, {"x", "8", "[1, 5, 5, 7]"});
  expect_complaint([&] { layer(torch::randn({5, 5, 8})); }, {"x", "[5, 5, 8]"});
  expect_complaint(
      [&] {
        layer(torch::randn({1, 5, 5, 8}), torch::ones({1, 5, 4}, torch::kBool));
      },
      {"mask", "[1, 5, 4]"});
  expect_complaint([&] { layer(torch::randn({1, 5, 5, 8}), torch::ones({1, 5, 5})); }, {"mask"});
}

}  // namespace
}  // namespace qna::nn
