// Stand-alone self-attention of every implementation and dtype against the reference, forward and
// backward.
#include "qna/kernels/sasa.h"

#include "qna/kernels/sasa_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

template <typename T>
struct Sasa {
  using Problem = SasaProblem<T>;
  static constexpr bool kFloat = std::is_same_v<T, float>;

  static void near(const auto& visit) {
    for (const WindowRow& row : kWindowRows)
      for (const bool bias : {false, true})
        for (const bool mask : {false, true}) {
          if (!kFloat && bias != mask) continue;  // 16 bits are about loading and storing
          visit(row.what, Problem(row.shape, {.bias = bias,
                                              .mask = mask,
                                              .in_heads_fast = mask,
                                              .out_heads_fast = bias != mask,
                                              .gap = bias ? 0 : 4,
                                              .scale = 0.5f}));
        }
    for (const WindowRow& row : kStripRows) {
      if (!kFloat && row.shape.width > 300) continue;
      visit(row.what, Problem(row.shape, {.mask = true, .scale = 0.5f}), {1, 3});
    }
    // Strides, dilations, one-sided padding, masks, layouts: any of them together.
    RandomShapes random(kFloat ? 5 : 6);
    for (int round = 0; round < (kFloat ? 300 : 60); ++round) {
      const SasaOptions options{.bias = random.coin(),
                                .mask = random.coin(),
                                .in_heads_fast = random.coin(),
                                .out_heads_fast = random.coin(),
                                .gap = random.coin() ? 0
                                       : kFloat      ? random.between(1, 9)
                                                     : 3,
                                .scale = 0.5f,
                                .seed = static_cast<uint32_t>(round)};
      visit("random", Problem(random.shape(), options));
    }
    if (!kFloat) return;
    // Every number of heads beside a vector's lanes, and dimensions that fill no vector.
    for (int64_t heads = 1; heads <= 34; ++heads)
      for (const int64_t dim : {1, 2, 3, 5, 8}) {
        visit("heads",
              Problem(Map(1, 4, 7, heads, dim).padded(),
                      {.in_heads_fast = heads % 2 == 0, .out_heads_fast = heads % 3 == 0}));
      }
    for (int64_t dim = 1; dim <= 128; ++dim) {
      visit("dimensions", Problem(Map(1, 3, 6, dim % 3 == 0 ? 8 : dim % 5 + 1, dim).padded(),
                                  {.in_heads_fast = dim % 2 == 0,
                                   .out_heads_fast = dim % 4 < 2,
                                   .gap = dim % 5,
                                   .scale = fan_in(dim)}));
    }
    // Every width beside a tile's windows, for windows from one tap to more than the map.
    for (int64_t width = 1; width <= 14; ++width)
      for (int64_t kernel = 1; kernel <= 8; ++kernel) {
        visit("widths", Problem(Map(1, 3, width, 4, 3).kernel(kernel % 4 + 1, kernel).padded(),
                                {.mask = width % 2 == 0}));
      }
    // Many bands forward and backward, and strips of columns that share pixels.
    const SasaOptions options{.mask = true, .in_heads_fast = true, .scale = 0.4f};
    visit("tall", Problem(Map(1, 150, 20, 8, 3).kernel(5, 5).padded(), options));
    visit("wide", Problem(Map(1, 9, 700, 8, 8).kernel(5, 7).padded(), options));
    // Products of this size are off by 2^-23 of it, and the weights by as much.
    for (const float scale : {30.0f, 1e3f, 1e4f})
      for (const bool mask : {false, true}) {
        Problem problem(Map(1, 5, 9, 3, 4).padded(), {.mask = mask, .scale = scale});
        problem.tolerance.by_scale = 32 * scale * 0x1p-23;
        visit("large scores", problem);
      }
    // -inf in the bias takes a tap out, for one head or, all taps, the head.
    Problem infinite(Map(1, 5, 9, 3, 4).padded(), {});
    for (int64_t t = 0; t < 9; ++t) {
      if (t % 2 == 0) infinite.bias[t * 3] = -kInfinity;
      infinite.bias[t * 3 + 1] = -kInfinity;
    }
    visit("infinite bias", infinite);
  }

  static void bits(const auto& visit) {
    const SasaOptions options{.mask = true, .in_heads_fast = true};
    visit("bands", Problem(Map(1, 61, 43, 8, 4).kernel(5, 5).padded(), options));
    visit("images", Problem(Map(5, 14, 14, 3, 5).padded(), options));
    if (kFloat) visit("strips", Problem(Map(1, 40, 300, 8, 8).kernel(7, 7).padded(), options));
    visit("strided and dilated", Problem(Map(1, 70, 9, 2, 3).stride(2, 1).dilation(2, 1), options));
  }

  static void masked(const auto& visit) {
    visit("masked", Problem(Map(1, 5, 9, 3, 4).padded(), {.mask = true}));
  }

  static Problem nothing() { return {Map(0, 5, 6, 2, 3), {}}; }
};

using SasaTypes = ::testing::Types<Sasa<float>, Sasa<BFloat16>, Sasa<Float16>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Sasa, Operator, SasaTypes);
INSTANTIATE_TYPED_TEST_SUITE_P(Sasa, MaskedOperator, SasaTypes);

TEST(Sasa, ScratchDoesNotGrowWithTheWidth) {
  expect_scratch_bounded([](const WindowShape& shape) { return SasaProblem<float>(shape, {}); });
}

// A shifted image gives the shifted output, bit by bit: a window's result does not depend on the
// tile it falls into.
TEST(Sasa, TheTileDoesNotMatter) {
  const Map shape(1, 3, 15, 4, 6), narrow(1, 3, 14, 4, 6);
  const SasaProblem<float> all(shape, {});
  SasaProblem<float> shifted(narrow, {});
  const int64_t floats = shape.features();
  for (int64_t y = 0; y < shape.height; ++y) {
    const int64_t from = (y * shape.width + 1) * floats, to = y * narrow.width * floats;
    std::copy_n(all.k.begin() + from, narrow.width * floats, shifted.k.begin() + to);
    std::copy_n(all.v.begin() + from, narrow.width * floats, shifted.v.begin() + to);
  }
  std::copy(all.q.begin() + floats, all.q.end(), shifted.q.begin());
  shifted.bias = all.bias;
  for_each_simd([&] {
    const std::vector<double> a = all.run()["out"];
    EXPECT_TRUE(same_bits({a.begin() + floats, a.end()}, shifted.run()["out"]));
  });
}

// All scores far to one side: softmax does not mind, but for the rounding of the scores.
TEST(Sasa, OffsetScores) {
  const SasaProblem<float> plain(Map(1, 5, 9, 3, 4).padded(), {.mask = true});
  const Results expected = by_reference(plain);
  for (const float offset : {1e4f, -1e4f, 1e6f}) {
    SCOPED_TRACE(offset);
    SasaProblem<float> problem = plain;
    for (float& cell : problem.bias) cell += offset;
    problem.tolerance.by_scale = 8 * std::abs(offset) * 0x1p-23;
    for_each_simd([&] { expect_near(problem.run(), expected); });
  }
}

TEST(Sasa, AWindowWithoutTapsGivesZero) {
  // Windows that lie in the padding, and a map that is masked altogether.
  const SasaProblem<float> padding(Map(1, 3, 3, 2, 3).padding(6, 5, 6, 9), {});
  EXPECT_EQ(compare_all(padding)["out"][0], 0);
  SasaProblem<float> masked(Map(1, 4, 9, 2, 3).padded(), {.mask = true});
  std::fill(masked.mask.begin(), masked.mask.end(), 0);
  for_each_implementation([&] {
    EXPECT_EQ(padding.run()["out"][0], 0);
    expect_zero(masked.run());
  });
}

// A NaN goes where the formula takes it, and no further.
TEST(Sasa, NanStaysInItsWindows) {
  for (const int part : {0, 1, 2}) {
    SCOPED_TRACE(fmt::format("part {}", part));
    SasaProblem<float> problem(Map(1, 6, 9, 2, 5).padded(), {});
    std::vector<float>& map = part == 0 ? problem.q : part == 1 ? problem.k : problem.v;
    map[(2 * 9 + 4) * 10 + 7] = kNan;
    const Results expected = compare_all(problem);
    // Of a query: one head of one pixel. Of a key: of 3 x 3 pixels. Of a value: one channel.
    EXPECT_EQ(count_nan(expected["out"]), part == 0 ? 5 : part == 1 ? 9 * 5 : 9);
  }
}

// The reference's gradients against differences of its forward pass, in double. The loss is
// <out, grad_out>; step^2 and 1e-16 / step are both 1e-10.
TEST(SasaGradient, ReferenceAgainstDifferences) {
  SasaProblem<double> problems[] = {
      {Map(1, 4, 5, 2, 3).padded(), {.mask = true}},
      {Map(2, 5, 4, 1, 2).kernel(2, 3).stride(2, 1).padding(1, 0, 0, 3).dilation(1, 2), {}}};
  for (SasaProblem<double>& problem : problems) {
    SCOPED_TRACE(problem.text());
    expect_gradients<double>(problem.run(),
                             {{"grad_q", &problem.q},
                              {"grad_k", &problem.k},
                              {"grad_v", &problem.v},
                              {"grad_bias", &problem.bias}},
                             [&] { return dot(problem.run()["out"], problem.grad_out); }, 1e-5,
                             {.absolute = 1e-8});
  }
}

}  // namespace
}  // namespace qna::kernels::testing
