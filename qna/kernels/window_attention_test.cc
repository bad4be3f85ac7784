// Window attention of every implementation and dtype against the reference, over shapes that fill
// no vector, tile or band.
#include "qna/kernels/window_attention.h"

#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

template <typename T>
struct WindowAttention {
  using Problem = WindowProblem<T>;
  static constexpr bool kFloat = std::is_same_v<T, float>;

  // All of bias, tap weights and mask, both output kinds, and the layouts in turn. 16 bits are
  // about loading and storing: they take one choice for each shape.
  static void options(const auto& visit, const char* what, WindowShape shape, int64_t turn) {
    for (int choice = 0; choice < 16; ++choice) {
      if (!kFloat && choice != turn % 16) continue;
      shape.separate = (choice & 8) != 0;
      visit(what, Problem(shape, {.bias = (choice & 1) != 0,
                                  .tap_weights = (choice & 2) != 0,
                                  .mask = (choice & 4) != 0,
                                  .values_heads_fast = choice % 3 == 1,
                                  .out_heads_fast = choice % 5 >= 3,
                                  .gap = choice % 7 == 6 ? 5 : 0,
                                  .seed = static_cast<uint32_t>(choice + 1)}));
    }
  }

  static void near(const auto& visit) {
    int64_t turn = 0;
    for (const WindowRow& row : kWindowRows) {
      options(visit, row.what, row.shape, turn++);
      visit(row.what, Problem(row.shape, {.mask = row.shape.width > 100}));
    }
    for (const WindowRow& row : kStripRows) {
      if (!kFloat && row.shape.width > 300) continue;
      WindowShape shape = row.shape;
      shape.separate = row.upsample > 1;
      visit(row.what, Problem(shape, {.mask = true, .gap = 3}), {1, 3});
    }
    RandomShapes random(kFloat ? 2022 : 16);
    for (int round = 0; round < (kFloat ? 400 : 120); ++round) {
      const WindowShape shape = random.shape();
      visit("random", Problem(shape, random_window_options(random)));
    }
    // Border, interior and tile tails.
    const Map map = Map(1, 4, 9, 3, 3, 2).padded();
    WindowShape shape = map;
    for (shape.heads = 1; shape.heads <= 20; ++shape.heads)
      options(visit, "head tail", shape, shape.heads);
    shape = map;
    for (shape.queries = 1; shape.queries <= 5; ++shape.queries)
      options(visit, "query tail", shape, shape.queries);
    shape = map;
    for (const int64_t heads : {1, 3, 8})
      for (const bool separate : {false, true})
        for (int64_t dim = 1; dim <= 40; ++dim) {
          shape.heads = heads, shape.head_dim = dim, shape.separate = separate;
          visit("dimension tail", Problem(shape, {.mask = dim % 2 == 0,
                                                  .values_heads_fast = dim % 3 == 0,
                                                  .out_heads_fast = dim % 3 == 1,
                                                  .gap = dim % 4}));
        }
    // The windows of a row are done in tiles of four where all their taps lie on the map.
    shape = map;
    for (shape.width = 1; shape.width <= 14; ++shape.width)
      for (shape.stride_w = 1; shape.stride_w <= 4; ++shape.stride_w)
        for (shape.dilation_w = 1; shape.dilation_w <= 2; ++shape.dilation_w) {
          shape.pad_right = std::max<int64_t>(1, shape.span_w() - shape.width - shape.pad_left);
          visit("width tail", Problem(shape, {.mask = shape.width % 3 == 0}));
        }
  }

  static void bits(const auto& visit) {
    for (const WindowRow& row : kBandRows) {
      if (!kFloat && row.shape.width > 100) continue;
      WindowShape shape = row.shape;
      shape.separate = row.upsample > 1;
      visit(row.what, Problem(shape, {.mask = true}));
    }
  }

  static void masked(const auto& visit) {
    WindowShape shape = Map(2, 7, 15, 5, 3, 3).padded();
    for (const bool separate : {false, true}) {
      shape.separate = separate;
      visit("masked", Problem(shape, {.mask = true}));
    }
  }

  static Problem nothing() { return {Map(0, 5, 5, 3, 2, 2), {}}; }
};

using WindowAttentionTypes =
    ::testing::Types<WindowAttention<float>, WindowAttention<BFloat16>, WindowAttention<Float16>>;
INSTANTIATE_TYPED_TEST_SUITE_P(WindowAttention, Operator, WindowAttentionTypes);
INSTANTIATE_TYPED_TEST_SUITE_P(WindowAttention, MaskedOperator, WindowAttentionTypes);

TEST(WindowAttention, ScratchDoesNotGrowWithTheWidth) {
  expect_scratch_bounded([](const WindowShape& shape) { return WindowProblem<float>(shape, {}); });
}

// The gradients of scores and values do not depend on other images. (Those of the tables are sums
// over images.) One image more or less changes the cut into bands, so this compares batches of
// equal cut.
TEST(WindowAttention, GradientsDoNotDependOnOtherImages) {
  const WindowShape shape = Map(4, 21, 9, 3, 4, 2).padded();
  const WindowProblem<float> before(shape, {.seed = 1});
  const WindowProblem<float> other(shape, {.seed = 2});
  WindowProblem<float> after = before;  // images 0 and 1 stay, 2 and 3 are replaced
  const auto replace_half = [](std::vector<float>& cells, const std::vector<float>& by) {
    std::copy(by.begin() + by.size() / 2, by.end(), cells.begin() + cells.size() / 2);
  };
  replace_half(after.scores, other.scores);
  replace_half(after.values, other.values);
  replace_half(after.grad_out, other.grad_out);
  for_each_simd([&] {
    const Results a = before.run(), b = after.run();
    for (const char* name : {"out", "grad_scores", "grad_values"}) {
      EXPECT_TRUE(same_bits(part_of(a[name], 0, 2), part_of(b[name], 0, 2))) << name;
      EXPECT_FALSE(same_bits(part_of(a[name], 1, 2), part_of(b[name], 1, 2))) << name;
    }
  });
}

// Features of sizes from 1e-8 to 1e8: each element is near by the size of the values it is made of.
TEST(WindowAttention, EveryElementIsNearByItsOwnValues) {
  for (const WindowRow& row : kWindowRows) {
    WindowProblem<float> p(row.shape, {.mask = true});
    for (int64_t pixel = 0; pixel < p.pixels(); ++pixel)
      for (int64_t head = 0; head < p.shape.heads; ++head)
        for (int64_t d = 0; d < p.shape.head_dim; ++d) {
          const auto feature = static_cast<float>((head * p.shape.head_dim + d) * 5 % 17 - 8);
          p.values[p.value_index(pixel, head, d)] *= std::pow(10.0f, feature);
        }
    WindowProblem<float> sizes = p;
    for (float& cell : sizes.values) cell = std::abs(cell);
    for (float& cell : sizes.tap_weights) cell = std::abs(cell);
    const auto by_plain_loops = [](const WindowProblem<float>& problem) {
      ForcedImplementation forced("reference");
      return problem.forward().cells();
    };
    const std::vector<double> expected = by_plain_loops(p), terms = by_plain_loops(sizes);
    // Exponentials are good to a few units in the last place; each tap rounds twice.
    const double rounding =
        static_cast<double>(2 * p.shape.taps() * p.shape.queries + 32) * 0x1p-24;
    for_each_simd([&] {
      const std::vector<double> found = p.forward().cells();
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], rounding * terms[i] + 1e-37)
            << row.what << " " << p.text() << ", element " << i;
      }
    });
  }
}

}  // namespace
}  // namespace qna::kernels::testing
