// Self-attention in windows of every implementation against the reference, forward and backward.
#include "qna/kernels/window_self_attention.h"

#include "qna/kernels/sweep_testonly.h"

namespace qna::kernels::testing {
namespace {

struct Size {
  int64_t height, width;
};

constexpr Size kNoBias = {-1, -1};

struct AttentionOptions {
  int64_t batch = 1;
  Size bias_margin = kNoBias;  // of the bias table over the window
  bool mask = false;
  float scale = 1;  // of the scores, which are of order 1 without it
};

struct AttentionProblem {
  // What of the window the map does not hold is cut off; the bias table stays.
  AttentionProblem(Size map, Size window, int64_t heads, int64_t dim,
                   const AttentionOptions& options = {})
      : args{.batch = options.batch,
             .height = map.height,
             .width = map.width,
             .heads = heads,
             .head_dim = dim,
             .window_h = std::min(window.height, map.height),
             .window_w = std::min(window.width, map.width),
             .qkv = nullptr,
             .scale = options.scale * fan_in(dim),
             .bias = nullptr,
             .bias_h = 0,
             .bias_w = 0,
             .mask = nullptr,
             .out = nullptr},
        qkv(normal_floats(pixels() * 3 * features(), 1)) {
    if (options.bias_margin.height >= 0) {
      args.bias_h = window.height + options.bias_margin.height;
      args.bias_w = window.width + options.bias_margin.width;
      bias = normal_floats(heads * (2 * args.bias_h - 1) * (2 * args.bias_w - 1), 2);
    }
    if (options.mask) mask = random_mask(pixels(), 3);
    // A score is a sum of `dim` products, an output one of as many values as the window has tokens,
    // their weights' sum 1. Roundings, by 2^-24 of sums of order 1 to 5, are of either sign: they
    // add up like the root of their number.
    tolerance.absolute = 20 * std::sqrt(static_cast<double>(tokens() + dim)) * 0x1p-24;
  }

  int64_t pixels() const { return args.batch * args.height * args.width; }
  int64_t features() const { return args.heads * args.head_dim; }
  int64_t tokens() const { return args.window_h * args.window_w; }

  // which: 0 the query, 1 the key, 2 the value of a pixel
  float* part(int64_t pixel, int64_t which, int64_t head = 0) {
    return qkv.data() + (pixel * 3 + which) * features() + head * args.head_dim;
  }
  // A masked pixel is still a query.
  void poison(int64_t n, float value) { std::fill_n(part(n, 1), 2 * features(), value); }

  WindowSelfAttentionArgs<float> with_pointers(float* out) const {
    WindowSelfAttentionArgs<float> all = args;
    all.qkv = qkv.data();
    all.bias = or_null(bias);
    all.mask = or_null(mask);
    all.out = out;
    return all;
  }

  // [B, H, W, heads, dim]
  Results run(int workers = 1) const {
    ThreadRuntime runtime(workers);
    return one_output(pixels() * features(), tolerance,
                      [&](float* out) { window_self_attention(with_pointers(out), runtime); });
  }

  std::string text() const {
    return fmt::format(
        "[batch {}, {} x {}, window {} x {}, heads {}, dim {}, scale {}, bias {} x {}, mask {}]",
        args.batch, args.height, args.width, args.window_h, args.window_w, args.heads,
        args.head_dim, args.scale, args.bias_h, args.bias_w, !mask.empty());
  }

  WindowSelfAttentionArgs<float> args;  // but for the pointers
  std::vector<float> qkv, bias;         // bias empty: none
  std::vector<uint8_t> mask;            // empty: none
  Tolerance tolerance;
};

struct GradientProblem : AttentionProblem {
  GradientProblem(Size map, Size window, int64_t heads, int64_t dim,
                  const AttentionOptions& options = {})
      : AttentionProblem(map, window, heads, dim, options),
        grad_out(normal_floats(pixels() * features(), 4)) {
    // Sums over the tokens and dims of terms of order 1.
    tolerance = {.by_scale = 4 * static_cast<double>(tokens() + dim + 16) * 0x1p-24};
  }

  Results run(int workers = 1) const {
    ThreadRuntime runtime(workers);
    std::vector<float> out(grad_out.size());
    GuardedOutput<float> grad_qkv("grad_qkv", qkv.size()), grad_bias("grad_bias", bias.size());
    window_self_attention(with_pointers(out.data()), runtime);
    window_self_attention_backward({.forward = with_pointers(out.data()),
                                    .grad_out = grad_out.data(),
                                    .grad_qkv = grad_qkv.data(),
                                    .grad_bias = bias.empty() ? nullptr : grad_bias.data()},
                                   runtime);
    Results results{tolerance, {grad_qkv.take(), grad_bias.take()}};
    results.parts.back().tolerance.by_scale *= 2;  // a sum over all windows
    return results;
  }

  std::vector<float> grad_out;
};

constexpr Size kMaps[] = {{1, 1}, {1, 7}, {5, 3}, {14, 14}, {20, 17}, {15, 9}};

// One pixel, a few, the usual one, more than half of the map, all of it.
std::vector<Size> windows_of(Size map) {
  std::vector<Size> windows;
  for (const Size window : {Size{1, 1},
                            {2, 3},
                            {7, 7},
                            {map.height / 2 + 1, map.width / 2 + 1},
                            {map.height, map.width}}) {
    windows.push_back({std::min(window.height, map.height), std::min(window.width, map.width)});
  }
  return windows;
}

constexpr AttentionOptions kOptions[] = {
    {},
    {.bias_margin = {0, 0}},
    {.mask = true},
    {.batch = 2, .bias_margin = {2, 3}, .scale = 0.5f},
    {.bias_margin = {1, 2}, .mask = true},
    {.batch = 3, .bias_margin = {0, 0}, .mask = true, .scale = 3},
};

struct WindowSelfAttention {
  using Problem = AttentionProblem;

  static void near(const auto& visit) {
    size_t round = 0;  // the options take turns
    for (const Size map : kMaps)
      for (const Size window : windows_of(map))
        for (int64_t heads = 1; heads <= 3; ++heads)
          for (const int64_t dim : {1, 3, 8, 16, 32, 40, 64, 128}) {
            const Problem problem(map, window, heads, dim, kOptions[round++ % std::size(kOptions)]);
            // Seconds of the reference's time would be too much.
            if (problem.pixels() * problem.tokens() * problem.features() > 3'000'000) continue;
            visit("maps, windows, heads and dimensions", problem);
          }
    for (const Size map : kMaps)
      for (const Size window : windows_of(map))
        for (const AttentionOptions& options : kOptions)
          for (const int64_t dim : {5, 8}) {
            visit("all options", Problem(map, window, 3, dim, options));
          }
    // Every number of keys beside a vector's lanes and a panel's vectors, and of rows beside a
    // tile's.
    for (int64_t width = 1; width <= 70; ++width) {
      const int64_t margin = width % 3;
      visit("tokens", Problem({2, width}, {1, width}, 1, 6,
                              {.bias_margin = {margin, margin == 0 ? 0 : margin + 1},
                               .mask = width % 2 == 0}));
    }
    for (int64_t dim = 1; dim <= 70; ++dim) {
      visit("dimensions", Problem({3, 5}, {2, 5}, 2, dim, {.bias_margin = {0, 0}}));
    }
    // The whole of a large map as one window: queries in many chunks.
    visit("large window", Problem({48, 64}, {48, 64}, 2, 5, {.bias_margin = {0, 0}, .mask = true}),
          {1, 2});
    // Products of this size are off by 2^-23 of it, and the weights by as much.
    for (const float scale : {30.0f, 100.0f, 1e4f, 1e6f})
      for (const bool mask : {false, true}) {
        Problem problem({7, 9}, {4, 9}, 2, 8, {.mask = mask, .scale = scale});
        problem.tolerance.absolute += 8 * scale * 0x1p-23;
        visit("large scores", problem);
      }
    // -inf in the bias table takes a key out for the queries at that distance.
    Problem infinite({6, 9}, {3, 4}, 2, 5, {.bias_margin = {0, 0}});
    for (size_t i = 0; i < infinite.bias.size(); i += 3) {
      const bool own = i % 35 == 17;  // the middle of 5 x 7: keeps a key for every query
      if (!own) infinite.bias[i] = -kInfinity;
    }
    visit("infinite bias", infinite);
  }

  static void bits(const auto& visit) {
    visit("bits",
          Problem({20, 17}, {7, 7}, 3, 12, {.batch = 2, .bias_margin = {1, 2}, .mask = true}));
  }

  static void masked(const auto& visit) {
    visit("masked", Problem({6, 9}, {3, 4}, 2, 5, {.mask = true}));
    visit("masked", Problem({6, 9}, {3, 4}, 2, 5, {.bias_margin = {0, 0}, .mask = true}));
  }

  static Problem nothing() { return {{3, 4}, {2, 2}, 2, 5, {.batch = 0}}; }
};

struct WindowSelfAttentionGradients {
  using Problem = GradientProblem;

  static void near(const auto& visit) {
    const AttentionOptions both{.bias_margin = {0, 1}, .mask = true};
    for (const Size map : kMaps)
      for (const Size window : {Size{1, 1}, {2, 3}, {7, 7}, {14, 14}})
        for (const Size margin : {kNoBias, both.bias_margin})
          for (const bool mask : {false, true}) {
            visit("maps and windows",
                  Problem(map, window, 2, 5, {.batch = 2, .bias_margin = margin, .mask = mask}),
                  {1, 2, 3});
          }
    for (const int64_t dim : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33}) {
      visit("dimensions", Problem({5, 6}, {3, 4}, 3, dim, both), {1, 2, 3});
    }
    // More tokens than a chunk of queries holds.
    visit("large window", Problem({24, 25}, {24, 25}, 1, 16, both), {1, 2, 3});
  }

  static void bits(const auto& visit) {
    visit("bits",
          Problem({20, 17}, {7, 7}, 3, 12, {.batch = 2, .bias_margin = {1, 2}, .mask = true}));
  }

  static void masked(const auto& visit) {
    visit("masked", Problem({6, 9}, {3, 4}, 2, 5, {.bias_margin = {0, 0}, .mask = true}));
  }

  static Problem nothing() { return {{3, 4}, {2, 2}, 2, 5, {.batch = 0, .bias_margin = {0, 0}}}; }
};

using BothWays = ::testing::Types<WindowSelfAttention, WindowSelfAttentionGradients>;
INSTANTIATE_TYPED_TEST_SUITE_P(WindowSelfAttention, Operator, BothWays);
INSTANTIATE_TYPED_TEST_SUITE_P(WindowSelfAttention, MaskedOperator, BothWays);

// Each window of the map, those cut off by the edges too, against the same window as a map.
TEST(WindowSelfAttention, AWindowAloneGivesTheSameBits) {
  const AttentionProblem problem({20, 17}, {7, 5}, 2, 12,
                                 {.batch = 2, .bias_margin = {1, 2}, .mask = true});
  const WindowSelfAttentionArgs<float>& all = problem.args;
  const int64_t floats = problem.features();
  for_each_simd([&] {
    const std::vector<double> whole = problem.run().cells();
    for (int64_t image = 0; image < all.batch; ++image)
      for (int64_t top = 0; top < all.height; top += all.window_h)
        for (int64_t left = 0; left < all.width; left += all.window_w) {
          AttentionProblem window = problem;
          window.args.batch = 1;
          window.args.height = window.args.window_h = std::min(all.window_h, all.height - top);
          window.args.width = window.args.window_w = std::min(all.window_w, all.width - left);
          window.qkv.clear();
          window.mask.clear();
          std::vector<double> part;
          for (int64_t n = 0; n < window.tokens(); ++n) {
            const int64_t y = top + n / window.args.width;
            const int64_t pixel =
                (image * all.height + y) * all.width + left + n % window.args.width;
            const auto from = problem.qkv.begin() + pixel * 3 * floats;
            window.qkv.insert(window.qkv.end(), from, from + 3 * floats);
            window.mask.push_back(problem.mask[pixel]);
            const auto out = whole.begin() + pixel * floats;
            part.insert(part.end(), out, out + floats);
          }
          EXPECT_TRUE(same_bits(window.run().cells(), part))
              << "image " << image << " window at " << top << ", " << left;
        }
  });
}

TEST(WindowSelfAttention, AWindowWithoutKeysGivesZero) {
  AttentionProblem problem({6, 9}, {3, 4}, 2, 5, {.bias_margin = {0, 0}, .mask = true});
  const auto in_window = [](int64_t n) {
    return n / 9 >= 3 && n % 9 >= 4 && n % 9 < 8;  // below, in the middle
  };
  for (int64_t n = 0; n < 6 * 9; ++n) {
    if (in_window(n)) problem.mask[n] = 0;
  }
  compare_all(problem);
  for_each_simd([&] {
    const std::vector<double> out = problem.run().cells();
    for (int64_t i = 0; i < 6 * 9 * 10; ++i) {
      EXPECT_EQ(out[i] == 0, in_window(i / 10)) << "element " << i;
    }
  });
  GradientProblem gradients({4, 4}, {2, 2}, 2, 8, {.bias_margin = {0, 1}, .mask = true});
  std::fill(gradients.mask.begin(), gradients.mask.end(), 0);
  for (int64_t n = 0; n < gradients.pixels(); ++n) gradients.poison(n, kNan);
  for_each_implementation([&] { expect_zero(gradients.run()); });
}

// A NaN goes where the formula takes it, and no further.
TEST(WindowSelfAttention, NanStaysInItsWindow) {
  for (const int64_t which : {0, 1, 2}) {
    SCOPED_TRACE(fmt::format("part {}", which));
    AttentionProblem problem({6, 9}, {3, 4}, 2, 5, {.bias_margin = {0, 0}});
    problem.part(0 * 9 + 5, which, 1)[2] = kNan;  // above, in the middle
    // Of a query: one head of one pixel. Of a key: of 3 x 4 pixels. Of a value: one channel.
    EXPECT_EQ(count_nan(compare_all(problem).cells()), which == 0   ? 5
                                                       : which == 1 ? 3 * 4 * 5
                                                                    : 3 * 4);
  }
}

// A score of +inf makes its query's output NaN, as in the formula: a diverged network shows.
TEST(WindowSelfAttention, InfiniteScore) {
  AttentionProblem problem({6, 9}, {3, 4}, 2, 5, {.bias_margin = {0, 0}});
  problem.bias[35 + 18] = kInfinity;  // one to the right, second head
  // Of 9 columns, those 6 that are not a window's last.
  EXPECT_EQ(count_nan(compare_all(problem).cells()), 6 * 6 * 5);
}

// All scores far to one side: softmax does not mind, but for the rounding of the scores.
TEST(WindowSelfAttention, OffsetScores) {
  const AttentionProblem plain({7, 9}, {4, 9}, 2, 8, {.bias_margin = {0, 0}, .mask = true});
  const Results expected = by_reference(plain);
  for (const float offset : {1e4f, -1e4f}) {
    SCOPED_TRACE(offset);
    AttentionProblem problem = plain;
    for (float& cell : problem.bias) cell += offset;
    problem.tolerance = {.absolute = 8 * 1e4 * 0x1p-23};
    for_each_simd([&] { expect_near(problem.run(), expected); });
  }
}

// The loss is <out, grad_out>. The forward pass answers in float32: an error of 6e-8 of each term,
// divided by a step of 2^-7 twice; and the square of the step.
TEST(WindowSelfAttention, ReferenceAgainstDifferences) {
  ForcedImplementation forced("reference");
  GradientProblem problem({3, 4}, {2, 3}, 2, 3, {.bias_margin = {0, 1}, .mask = true});
  expect_gradients<float>(
      problem.run(), {{"grad_qkv", &problem.qkv}, {"grad_bias", &problem.bias}},
      [&] { return dot(problem.AttentionProblem::run().cells(), problem.grad_out); }, 0x1p-7f,
      {.absolute = 5e-4});
}

}  // namespace
}  // namespace qna::kernels::testing
