// Self-attention in windows of every implementation against the reference.
#include "qna/kernels/self_attention.h"

#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct AttentionOptions {
  int64_t batch = 1;
  int64_t bias_margin = -1;  // of the bias table over the window, rows; columns one more. -1: none
  bool mask = false;
  float scale = 1;  // of the scores, which are of order 1 without it
  uint32_t seed = 1;
};

struct Size {
  int64_t height, width;
};

struct AttentionProblem {
  AttentionProblem(Size map, Size window, int64_t heads, int64_t dim,
                   const AttentionOptions& options = {})
      : args{.batch = options.batch,
             .height = map.height,
             .width = map.width,
             .heads = heads,
             .head_dim = dim,
             .window_h = window.height,
             .window_w = window.width,
             .qkv = nullptr,
             .scale = options.scale / std::sqrt(static_cast<float>(dim)),
             .bias = nullptr,
             .bias_h = 0,
             .bias_w = 0,
             .mask = nullptr,
             .out = nullptr} {
    qkv = normal_floats(pixels() * 3 * features(), options.seed);
    if (options.bias_margin >= 0) {
      args.bias_h = window.height + options.bias_margin;
      args.bias_w = window.width + (options.bias_margin == 0 ? 0 : options.bias_margin + 1);
      bias = normal_floats(heads * (2 * args.bias_h - 1) * (2 * args.bias_w - 1), options.seed + 1);
    }
    if (options.mask) {
      std::mt19937 random(options.seed + 2);
      for (int64_t n = 0; n < pixels(); ++n) mask.push_back(random() % 4 != 0);
    }
  }

  int64_t pixels() const { return args.batch * args.height * args.width; }
  int64_t features() const { return args.heads * args.head_dim; }
  int64_t tokens() const { return args.window_h * args.window_w; }

  // which: 0 the query, 1 the key, 2 the value of a pixel
  float* part(int64_t pixel, int64_t which, int64_t head = 0) {
    return qkv.data() + (pixel * 3 + which) * features() + head * args.head_dim;
  }

  // [B, H, W, heads, dim]
  std::vector<double> run(const auto& kernel, int workers = 1) const {
    ThreadRuntime runtime(workers);
    return collect_guarded<float>(pixels() * features(), [&](float* out) {
      SelfAttentionArgs all = args;
      all.qkv = qkv.data();
      all.bias = or_null(bias);
      all.mask = or_null(mask);
      all.out = out;
      kernel(all, runtime);
    });
  }

  SelfAttentionArgs args;        // but for the pointers
  std::vector<float> qkv, bias;  // bias empty: none
  std::vector<uint8_t> mask;     // empty: none
};

std::string text(const AttentionProblem& p) {
  return fmt::format("[batch {}, {} x {}, window {} x {}, heads {}, dim {}, bias {} x {}, mask {}]",
                     p.args.batch, p.args.height, p.args.width, p.args.window_h, p.args.window_w,
                     p.args.heads, p.args.head_dim, p.args.bias_h, p.args.bias_w, !p.mask.empty());
}

// A score is a sum of `dim` products, an output one of as many values as the window has tokens,
// their weights' sum 1. Roundings, by 2^-24 of sums of order 1 to 5, are of either sign: they add
// up like the root of their number.
double tolerance(const AttentionProblem& p) {
  return 20 * std::sqrt(static_cast<double>(p.tokens() + p.args.head_dim)) * 0x1p-24;
}

void compare_all(const AttentionProblem& problem, double more = 0) {
  const std::vector<double> expected = problem.run(&self_attention_reference);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(fmt::format("{} {}", implementation->name, text(problem)));
    EXPECT_TRUE(
        near(problem.run(implementation->self_attention), expected, tolerance(problem) + more));
  }
}

constexpr Size kMaps[] = {{1, 1}, {1, 7}, {5, 3}, {14, 14}, {20, 17}};

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
    {.bias_margin = 0},
    {.mask = true},
    {.batch = 2, .bias_margin = 2, .scale = 0.5f},
    {.bias_margin = 1, .mask = true},
    {.batch = 3, .bias_margin = 0, .mask = true, .scale = 3},
};

TEST(SelfAttention, MapsWindowsHeadsAndDimensions) {
  size_t round = 0;  // the options take turns
  for (const Size map : kMaps)
    for (const Size window : windows_of(map))
      for (int64_t heads = 1; heads <= 3; ++heads)
        for (const int64_t dim : {1, 3, 8, 16, 32, 40, 64, 128}) {
          const AttentionProblem problem(map, window, heads, dim,
                                         kOptions[round++ % std::size(kOptions)]);
          // Seconds of the reference's time would be too much.
          if (problem.pixels() * problem.tokens() * problem.features() > 3'000'000) continue;
          compare_all(problem);
          if (HasFailure()) return;
        }
}

TEST(SelfAttention, AllOptions) {
  for (const Size map : kMaps)
    for (const Size window : windows_of(map))
      for (const AttentionOptions& options : kOptions)
        for (const int64_t dim : {5, 8}) {
          compare_all(AttentionProblem(map, window, 3, dim, options));
          if (HasFailure()) return;
        }
}

// Every number of keys beside a vector's lanes and a panel's vectors, and of rows beside a tile's.
TEST(SelfAttention, EveryNumberOfTokens) {
  for (int64_t width = 1; width <= 70 && !HasFailure(); ++width) {
    compare_all(AttentionProblem({2, width}, {1, width}, 1, 6,
                                 {.bias_margin = width % 3, .mask = width % 2 == 0}));
  }
}

TEST(SelfAttention, EveryHeadDimension) {
  for (int64_t dim = 1; dim <= 70 && !HasFailure(); ++dim) {
    compare_all(AttentionProblem({3, 5}, {2, 5}, 2, dim, {.bias_margin = 0}));
  }
}

// The whole of a large map as one window: queries in many chunks.
TEST(SelfAttention, LargeWindow) {
  const AttentionProblem problem({48, 64}, {48, 64}, 2, 5, {.bias_margin = 0, .mask = true});
  const std::vector<double> expected = problem.run(&self_attention_reference);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(implementation->name);
    const std::vector<double> one = problem.run(implementation->self_attention);
    EXPECT_TRUE(near(one, expected, tolerance(problem)));
    EXPECT_EQ(one, problem.run(implementation->self_attention, 2));
  }
}

TEST(SelfAttention, SameBitsForAnyNumberOfWorkers) {
  const AttentionProblem problem({20, 17}, {7, 7}, 3, 12,
                                 {.batch = 2, .bias_margin = 1, .mask = true});
  for (const Implementation* implementation : simd_implementations()) {
    const std::vector<double> one = problem.run(implementation->self_attention, 1);
    for (const int workers : {2, 3, 8}) {
      EXPECT_EQ(one, problem.run(implementation->self_attention, workers))
          << implementation->name << " " << workers << " workers";
    }
  }
}

// Each window of the map, those cut off by the edges too, against the same window as a map.
TEST(SelfAttention, AWindowAloneGivesTheSameBits) {
  const AttentionProblem problem({20, 17}, {7, 5}, 2, 12,
                                 {.batch = 2, .bias_margin = 1, .mask = true});
  const SelfAttentionArgs& all = problem.args;
  const int64_t floats = problem.features();
  for (const Implementation* implementation : simd_implementations()) {
    const std::vector<double> whole = problem.run(implementation->self_attention);
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
          EXPECT_EQ(window.run(implementation->self_attention), part)
              << implementation->name << " image " << image << " window at " << top << ", " << left;
        }
  }
}

TEST(SelfAttention, AWindowWithoutKeysGivesZero) {
  AttentionProblem problem({6, 9}, {3, 4}, 2, 5, {.bias_margin = 0, .mask = true});
  const auto in_window = [](int64_t n) {
    return n / 9 >= 3 && n % 9 >= 4 && n % 9 < 8;  // below, in the middle
  };
  for (int64_t n = 0; n < 6 * 9; ++n) {
    if (in_window(n)) problem.mask[n] = 0;
  }
  compare_all(problem);
  for (const Implementation* implementation : simd_implementations()) {
    const std::vector<double> out = problem.run(implementation->self_attention);
    for (int64_t i = 0; i < 6 * 9 * 10; ++i) {
      EXPECT_EQ(out[i] == 0, in_window(i / 10)) << implementation->name << " element " << i;
    }
  }
}

// Any value but 0 makes a key.
TEST(SelfAttention, MaskOfOtherValues) {
  AttentionProblem problem({6, 9}, {3, 4}, 2, 5, {.mask = true});
  AttentionProblem other = problem;
  for (uint8_t& cell : other.mask) cell = static_cast<uint8_t>(cell * 0x80);
  for (const Implementation* implementation : simd_implementations()) {
    EXPECT_EQ(problem.run(implementation->self_attention),
              other.run(implementation->self_attention));
  }
}

// What a masked pixel's key and value hold does not matter.
TEST(SelfAttention, MaskedPixelsDoNotMatter) {
  const AttentionProblem clean({6, 9}, {3, 4}, 2, 5, {.bias_margin = 0, .mask = true});
  for (const float poison : {std::numeric_limits<float>::infinity(), kNan, -3e38f}) {
    AttentionProblem problem = clean;
    for (int64_t n = 0; n < problem.pixels(); ++n) {
      if (problem.mask[n] == 0) std::fill_n(problem.part(n, 1), 2 * problem.features(), poison);
    }
    for (const Implementation& implementation : implementations()) {
      if (!implementation.supported) continue;
      EXPECT_EQ(problem.run(implementation.self_attention),
                clean.run(implementation.self_attention))
          << implementation.name << " " << poison;
    }
  }
}

// A NaN goes where the formula takes it, and no further.
TEST(SelfAttention, NanStaysInItsWindow) {
  for (const int64_t which : {0, 1, 2}) {
    AttentionProblem problem({6, 9}, {3, 4}, 2, 5, {.bias_margin = 0});
    problem.part(0 * 9 + 5, which, 1)[2] = kNan;  // above, in the middle
    const std::vector<double> expected = problem.run(&self_attention_reference);
    int64_t count = 0;
    for (const double value : expected) count += std::isnan(value) ? 1 : 0;
    // Of a query: one head of one pixel. Of a key: of 3 x 4 pixels. Of a value: one channel.
    EXPECT_EQ(count, which == 0 ? 5 : which == 1 ? 3 * 4 * 5 : 3 * 4);
    SCOPED_TRACE(fmt::format("part {}", which));
    compare_all(problem);
  }
}

// -inf in the bias table takes a key out for the queries at that distance.
TEST(SelfAttention, InfiniteBias) {
  AttentionProblem problem({6, 9}, {3, 4}, 2, 5, {.bias_margin = 0});
  for (size_t i = 0; i < problem.bias.size(); i += 3) {
    const bool own = i % 35 == 17;  // the middle of 5 x 7: keeps a key for every query
    if (!own) problem.bias[i] = -std::numeric_limits<float>::infinity();
  }
  compare_all(problem);
}

// A score of +inf makes its query's output NaN, as in the formula: a diverged network shows.
TEST(SelfAttention, InfiniteScore) {
  AttentionProblem problem({6, 9}, {3, 4}, 2, 5, {.bias_margin = 0});
  problem.bias[35 + 18] = std::numeric_limits<float>::infinity();  // one to the right, second head
  const std::vector<double> out = problem.run(&self_attention_reference);
  const auto poisoned =
      std::count_if(out.begin(), out.end(), [](double value) { return std::isnan(value); });
  // Of 9 columns, those 6 that are not a window's last.
  EXPECT_EQ(poisoned, 6 * 6 * 5);
  compare_all(problem);
}

// Products of this size are off by 2^-23 of it, and the weights by as much.
TEST(SelfAttention, LargeScores) {
  for (const float scale : {30.0f, 100.0f, 1e4f, 1e6f})
    for (const bool mask : {false, true}) {
      SCOPED_TRACE(scale);
      const AttentionProblem problem({7, 9}, {4, 9}, 2, 8, {.mask = mask, .scale = scale});
      compare_all(problem, 8 * scale * 0x1p-23);
    }
}

// All scores far to one side: softmax does not mind, but for the rounding of the scores.
TEST(SelfAttention, OffsetScores) {
  const AttentionProblem plain({7, 9}, {4, 9}, 2, 8, {.bias_margin = 0, .mask = true});
  const std::vector<double> expected = plain.run(&self_attention_reference);
  for (const float offset : {1e4f, -1e4f}) {
    AttentionProblem problem = plain;
    for (float& cell : problem.bias) cell += offset;
    for (const Implementation* implementation : simd_implementations()) {
      EXPECT_TRUE(near(problem.run(implementation->self_attention), expected, 8 * 1e4 * 0x1p-23))
          << implementation->name << " " << offset;
    }
  }
}

TEST(SelfAttention, NoImage) {
  const AttentionProblem problem({3, 4}, {2, 2}, 2, 5, {.batch = 0});
  for (const Implementation* implementation : simd_implementations()) {
    EXPECT_TRUE(problem.run(implementation->self_attention).empty());
  }
}

}  // namespace
}  // namespace qna::kernels::testing
