// depthwise, max_pool and average_pool of every implementation against the reference.
#include "qna/kernels/pool.h"

#include "qna/kernels/convolution_shapes_testonly.h"
#include "qna/kernels/depthwise.h"
#include "qna/kernels/sweep_testonly.h"

namespace qna::kernels::testing {
namespace {

enum class Reduction { kDepthwise, kDepthwiseRelu, kDepthwiseRelu6, kMax, kMaxMasked, kAverage };

struct ReductionProblem {
  ReductionProblem(const ConvolutionShape& shape_in, Reduction reduction_in)
      : shape(shape_in), reduction(reduction_in) {
    x = normal_floats(shape.pixels() * shape.in_features, 1);
    weight = normal_floats(shape.taps() * shape.in_features, 2);
    bias = normal_floats(shape.in_features, 4);
    if (reduction == Reduction::kMaxMasked) mask = random_mask(shape.pixels(), 3);
  }

  Results run(int workers = 1) const {
    ThreadRuntime runtime(workers);
    // A maximum is one of the values. Sums of `taps` values of order 1, each addition rounded by
    // 2^-24 of the sum so far.
    const bool exact = reduction == Reduction::kMax || reduction == Reduction::kMaxMasked;
    const double sums = 5 * static_cast<double>(shape.taps() + 4) * 0x1p-24;
    const Tolerance tolerance{.absolute = exact ? 0 : sums};
    return one_output(shape.windows() * shape.in_features, tolerance, [&](float* y) {
      const PoolArgs pool{.shape = shape, .x = x.data(), .mask = or_null(mask), .y = y};
      if (reduction == Reduction::kDepthwise) {
        depthwise({.shape = shape, .x = x.data(), .weight = weight.data(), .y = y}, runtime);
      } else if (reduction == Reduction::kDepthwiseRelu) {
        depthwise({shape, x.data(), weight.data(), bias.data(), Activation::kRelu, y}, runtime);
      } else if (reduction == Reduction::kDepthwiseRelu6) {
        depthwise({shape, x.data(), weight.data(), bias.data(), Activation::kRelu6, y}, runtime);
      } else if (reduction == Reduction::kAverage) {
        average_pool(pool, runtime);
      } else {
        max_pool(pool, runtime);
      }
    });
  }

  int64_t count() const { return shape.batch; }
  ReductionProblem alone(int64_t image) const {
    ReductionProblem one = *this;
    one.shape.batch = 1;
    one.x = part_of(x, image, count());
    one.mask = part_of(mask, image, count());
    return one;
  }

  void poison(int64_t n, float value) {
    std::fill_n(x.data() + n * shape.in_features, shape.in_features, value);
  }

  std::string text() const {
    return fmt::format("reduction {} {}", static_cast<int>(reduction), testing::text(shape));
  }

  ConvolutionShape shape;
  Reduction reduction;
  OddInput<float> x, weight, bias;
  OddInput<uint8_t> mask;  // empty: none
};

template <Reduction kReduction>
struct Reductions {
  static ReductionProblem problem(const ConvolutionShape& shape) { return {shape, kReduction}; }

  static void near(const auto& visit) {
    for (const int64_t features : {1, 5, 16, 35})
      for (const ConvolutionShape& shape : convolution_shapes(features)) {
        visit("shapes", problem(shape));
      }
    for (int64_t features = 1; features <= 70; ++features) {
      visit("feature tails", problem(square_window(2, 4, 9, features, 3)));
    }
    visit("the whole map as one window", problem({.batch = 2,
                                                  .height = 30,
                                                  .width = 40,
                                                  .in_features = 20,
                                                  .kernel_h = 30,
                                                  .kernel_w = 40}));
    for (const float poison : {kNan, kInfinity, -kInfinity}) {
      ReductionProblem spoilt = problem(square_window(1, 5, 9, 18, 3));
      spoilt.x[(2 * 9 + 3) * 18 + 1] = poison;
      spoilt.x[(2 * 9 + 3) * 18 + 17] = poison;
      spoilt.x[3] = poison;
      spoilt.x[18 + 3] = 1;  // beside it, before and behind in the order of taps
      visit("NaN and infinity", spoilt);
    }
  }

  static void bits(const auto& visit) {
    ConvolutionShape s = square_window(3, 11, 13, 21, 5);
    s.stride_h = 2;
    visit("bits", problem(with_out_size(s)));
  }

  static void masked(const auto& visit) { visit("masked", problem(square_window(2, 5, 8, 19, 3))); }

  static ReductionProblem nothing() { return problem({.batch = 0, .in_features = 3}); }
};

using AllReductions =
    ::testing::Types<Reductions<Reduction::kDepthwise>, Reductions<Reduction::kDepthwiseRelu>,
                     Reductions<Reduction::kDepthwiseRelu6>, Reductions<Reduction::kMax>,
                     Reductions<Reduction::kMaxMasked>, Reductions<Reduction::kAverage>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Pool, Operator, AllReductions);
INSTANTIATE_TYPED_TEST_SUITE_P(Pool, MaskedOperator, Reductions<Reduction::kMaxMasked>);

TEST(Pool, ZeroPaddingCountsInTheMean) {
  ReductionProblem problem({.height = 2,
                            .width = 2,
                            .in_features = 1,
                            .kernel_h = 3,
                            .kernel_w = 3,
                            .pad_top = 1,
                            .pad_left = 1},
                           Reduction::kAverage);
  for (const int64_t i : {0, 1, 2, 3}) problem.x[i] = 9.0f * static_cast<float>(i + 1);
  for_each_implementation([&] { EXPECT_EQ(problem.run().cells(), std::vector<double>{10}); });
}

// Negative values only: neither the padding nor masked pixels win. Windows without any give 0.
TEST(Pool, MaximumOfNegativeValues) {
  for (const Reduction reduction : {Reduction::kMax, Reduction::kMaxMasked}) {
    const ConvolutionShape s{.height = 5,
                             .width = 8,
                             .in_features = 19,
                             .kernel_h = 3,
                             .kernel_w = 2,
                             .pad_top = 4,
                             .pad_left = 3};
    ReductionProblem problem(with_out_size(s), reduction);
    for (float& value : problem.x) value = -std::abs(value) - 1;
    for (int64_t n = 0; n < problem.mask.size(); ++n) {
      if (problem.mask[n] == 0) problem.poison(n, kNan);
    }
    const std::vector<double> y = compare_all(problem).cells();
    EXPECT_GT(std::count(y.begin(), y.end(), 0.0), 0);
    EXPECT_EQ(std::count_if(y.begin(), y.end(), [](double v) { return std::isnan(v) || v > 0; }),
              0);
  }
}

// All of a window -inf is -inf, not 0.
TEST(Pool, MaximumOfMinusInfinity) {
  ReductionProblem problem(
      {.height = 1, .width = 2, .in_features = 17, .kernel_h = 1, .kernel_w = 2}, Reduction::kMax);
  std::fill(problem.x.begin(), problem.x.end(), -kInfinity);
  for_each_simd([&] { EXPECT_EQ(problem.run().cells(), std::vector<double>(17, -kInfinity)); });
}

}  // namespace
}  // namespace qna::kernels::testing
