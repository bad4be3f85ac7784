// Stand-alone self-attention of every implementation against the reference, forward and backward.
#include "qna/kernels/sasa.h"

#include "qna/kernels/sasa_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Every number of heads beside a vector's lanes, and dimensions that fill no vector.
TEST(Sasa, EveryNumberOfHeads) {
  for (int64_t heads = 1; heads <= 34 && !HasFailure(); ++heads)
    for (const int64_t dim : {1, 2, 3, 5, 8}) {
      compare_all(
          SasaProblem<float>(padded({.height = 4, .width = 7, .heads = heads, .head_dim = dim}),
                             {.in_heads_fast = heads % 2 == 0, .out_heads_fast = heads % 3 == 0}));
    }
}

TEST(Sasa, EveryHeadDimension) {
  for (int64_t dim = 1; dim <= 128 && !HasFailure(); ++dim) {
    const int64_t heads = dim % 3 == 0 ? 8 : dim % 5 + 1;
    compare_all(
        SasaProblem<float>(padded({.height = 3, .width = 6, .heads = heads, .head_dim = dim}),
                           {.in_heads_fast = dim % 2 == 0,
                            .out_heads_fast = dim % 4 < 2,
                            .gap = dim % 5,
                            .scale = 1.0f / std::sqrt(static_cast<float>(dim))}));
  }
}

// Every width beside a tile's windows, for windows from one tap to more than the map.
TEST(Sasa, EveryWidthAndWindow) {
  for (int64_t width = 1; width <= 14; ++width)
    for (int64_t kernel = 1; kernel <= 8 && !HasFailure(); ++kernel) {
      compare_all(SasaProblem<float>(padded({.height = 3,
                                             .width = width,
                                             .heads = 4,
                                             .head_dim = 3,
                                             .kernel_h = kernel % 4 + 1,
                                             .kernel_w = kernel}),
                                     {.mask = width % 2 == 0}));
    }
}

// Strides, dilations, one-sided padding, masks, layouts: any of them together.
TEST(Sasa, RandomProblems) {
  RandomProblems random(5);
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    compare_all(SasaProblem<float>(random.shape(), {.bias = random.coin(),
                                                    .mask = random.coin(),
                                                    .in_heads_fast = random.coin(),
                                                    .out_heads_fast = random.coin(),
                                                    .gap = random.coin() ? 0 : random.between(1, 9),
                                                    .scale = 0.5f,
                                                    .seed = static_cast<uint32_t>(i)}));
  }
}

// Many bands forward and backward, and strips of columns that share pixels.
TEST(Sasa, LargeMaps) {
  for (const bool wide : {false, true}) {
    const SasaProblem<float> problem(padded({.height = wide ? 9 : 150,
                                             .width = wide ? 700 : 20,
                                             .heads = 8,
                                             .head_dim = wide ? 8 : 3,
                                             .kernel_h = 5,
                                             .kernel_w = wide ? 7 : 5}),
                                     {.mask = true, .in_heads_fast = true, .scale = 0.4f});
    // The bias sums over all windows.
    compare_all(problem, 4 * float_tolerance(problem.shape));
  }
}

// 16-bit maps: float32 arithmetic from the rounded inputs, then one rounding.
template <typename T>
void compare_half(double rounding) {
  RandomProblems random(6);
  for (int i = 0; i < 60 && !::testing::Test::HasFailure(); ++i) {
    const SasaProblem<T> problem(random.shape(), {.bias = random.coin(),
                                                  .mask = random.coin(),
                                                  .in_heads_fast = random.coin(),
                                                  .out_heads_fast = random.coin(),
                                                  .gap = random.coin() ? 0 : 3,
                                                  .scale = 0.5f});
    compare_all(problem, rounding + float_tolerance(problem.shape));
  }
}
TEST(Sasa, BFloat16) { compare_half<BFloat16>(0x1p-8); }
TEST(Sasa, Float16) { compare_half<Float16>(0x1p-11); }

TEST(Sasa, NoImage) {
  const SasaProblem<float> problem({.batch = 0, .height = 5, .width = 6, .heads = 2, .head_dim = 3},
                                   {});
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    const SasaResult result = run_implementation(implementation, problem);
    EXPECT_TRUE(result.out.empty() && result.grad_k.empty());
    for (const double value : result.grad_bias) EXPECT_EQ(value, 0) << implementation.name;
  }
}

TEST(Sasa, SameBitsForAnyNumberOfWorkers) {
  const WindowShape shapes[] = {
      padded({.height = 61, .width = 43, .heads = 8, .head_dim = 4, .kernel_h = 5, .kernel_w = 5}),
      padded({.batch = 5, .height = 14, .width = 14, .heads = 3, .head_dim = 5}),
      padded({.height = 40, .width = 300, .heads = 8, .head_dim = 8, .kernel_h = 7, .kernel_w = 7}),
      {.height = 70, .width = 9, .heads = 2, .head_dim = 3, .stride_h = 2, .dilation_h = 2}};
  for (const WindowShape& shape : shapes) {
    const SasaProblem<float> problem(shape, {.mask = true, .in_heads_fast = true});
    for (const Implementation* implementation : simd_implementations()) {
      const SasaResult one = run_implementation(*implementation, problem);
      for (const int workers : {2, 3, 8}) {
        EXPECT_TRUE(same_bits(run_implementation(*implementation, problem, workers), one))
            << implementation->name << " " << workers << " workers " << text(shape);
      }
    }
  }
}

// A shifted image gives the shifted output, bit by bit: a window's result does not depend on the
// tile it falls into.
TEST(Sasa, TheTileDoesNotMatter) {
  const WindowShape shape{
      .height = 3, .width = 15, .heads = 4, .head_dim = 6, .kernel_h = 3, .kernel_w = 3};
  const SasaProblem<float> all(shape, {});
  WindowShape narrow = shape;
  narrow.width = shape.width - 1;
  SasaProblem<float> shifted(narrow, {});
  const int64_t floats = shape.features();
  for (int64_t y = 0; y < shape.height; ++y) {
    const int64_t from = (y * shape.width + 1) * floats, to = y * narrow.width * floats;
    std::copy_n(all.k.begin() + from, narrow.width * floats, shifted.k.begin() + to);
    std::copy_n(all.v.begin() + from, narrow.width * floats, shifted.v.begin() + to);
  }
  std::copy(all.q.begin() + floats, all.q.end(), shifted.q.begin());
  shifted.bias = all.bias;
  for (const Implementation* implementation : simd_implementations()) {
    const SasaResult a = run_implementation(*implementation, all);
    const SasaResult b = run_implementation(*implementation, shifted);
    EXPECT_EQ(std::vector<double>(a.out.begin() + floats, a.out.end()), b.out)
        << implementation->name;
  }
}

// Products of this size are off by 2^-23 of it, and the weights by as much.
TEST(Sasa, LargeScores) {
  for (const float scale : {30.0f, 1e3f, 1e4f})
    for (const bool mask : {false, true}) {
      compare_all(SasaProblem<float>(padded({.height = 5, .width = 9, .heads = 3, .head_dim = 4}),
                                     {.mask = mask, .scale = scale}),
                  32 * scale * 0x1p-23);
    }
}

// All scores far to one side: softmax does not mind, but for the rounding of the scores.
TEST(Sasa, OffsetScores) {
  const SasaProblem<float> plain(padded({.height = 5, .width = 9, .heads = 3, .head_dim = 4}),
                                 {.mask = true});
  const SasaResult expected = run_reference(plain);
  for (const float offset : {1e4f, -1e4f, 1e6f}) {
    SasaProblem<float> problem = plain;
    for (float& cell : problem.bias) cell += offset;
    for (const Implementation* implementation : simd_implementations()) {
      SCOPED_TRACE(fmt::format("{} {}", implementation->name, offset));
      expect_near(run_implementation(*implementation, problem), expected,
                  8 * std::abs(offset) * 0x1p-23);
    }
  }
}

// What a masked pixel's key and value hold does not matter.
TEST(Sasa, MaskedPixelsDoNotMatter) {
  const SasaProblem<float> clean(padded({.height = 5, .width = 9, .heads = 3, .head_dim = 4}),
                                 {.mask = true});
  for (const float poison : {kInfinity, kNan, -3e38f}) {
    SasaProblem<float> problem = clean;
    for (int64_t n = 0; n < problem.pixels; ++n) {
      if (problem.mask[n] != 0) continue;
      std::fill_n(problem.k.begin() + n * 12, 12, poison);
      std::fill_n(problem.v.begin() + n * 12, 12, poison);
    }
    for (const Implementation& implementation : implementations()) {
      if (!implementation.supported) continue;
      EXPECT_TRUE(same_bits(run_implementation(implementation, problem),
                            run_implementation(implementation, clean)))
          << implementation.name << " " << poison;
    }
  }
}

TEST(Sasa, AWindowWithoutTapsGivesZero) {
  // Windows that lie in the padding, and a map that is masked altogether.
  SasaProblem<float> padding({.height = 3,
                              .width = 3,
                              .heads = 2,
                              .head_dim = 3,
                              .pad_top = 6,
                              .pad_bottom = 5,
                              .pad_left = 6,
                              .pad_right = 9},
                             {});
  compare_all(padding);
  SasaProblem<float> masked(padded({.height = 4, .width = 9, .heads = 2, .head_dim = 3}),
                            {.mask = true});
  std::fill(masked.mask.begin(), masked.mask.end(), 0);
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    EXPECT_EQ(run_implementation(implementation, padding).out[0], 0) << implementation.name;
    const SasaResult result = run_implementation(implementation, masked);
    for (const auto& values :
         {result.out, result.grad_q, result.grad_k, result.grad_v, result.grad_bias}) {
      EXPECT_EQ(largest(values), 0) << implementation.name;
      EXPECT_TRUE(near(values, std::vector<double>(values.size(), 0), 0)) << implementation.name;
    }
  }
}

// -inf in the bias takes a tap out, for one head or, all taps, the head.
TEST(Sasa, InfiniteBias) {
  SasaProblem<float> problem(padded({.height = 5, .width = 9, .heads = 3, .head_dim = 4}), {});
  for (int64_t t = 0; t < 9; ++t) {
    if (t % 2 == 0) problem.bias[t * 3] = -kInfinity;
    problem.bias[t * 3 + 1] = -kInfinity;
  }
  compare_all(problem);
}

// A NaN goes where the formula takes it, and no further.
TEST(Sasa, NanStaysInItsWindows) {
  for (const int part : {0, 1, 2}) {
    SasaProblem<float> problem(padded({.height = 6, .width = 9, .heads = 2, .head_dim = 5}), {});
    std::vector<float>& map = part == 0 ? problem.q : part == 1 ? problem.k : problem.v;
    map[(2 * 9 + 4) * 10 + 7] = kNan;
    const SasaResult expected = run_reference(problem);
    int64_t count = 0;
    for (const double value : expected.out) count += std::isnan(value) ? 1 : 0;
    // Of a query: one head of one pixel. Of a key: of 3 x 3 pixels. Of a value: one channel.
    EXPECT_EQ(count, part == 0 ? 5 : part == 1 ? 9 * 5 : 9);
    for (const Implementation* implementation : simd_implementations()) {
      const SasaResult actual = run_implementation(*implementation, problem);
      EXPECT_TRUE(near_by_scale(actual.out, expected.out, 1e-5))
          << implementation->name << " part " << part;
    }
  }
}

}  // namespace
}  // namespace qna::kernels::testing
