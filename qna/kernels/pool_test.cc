// depthwise, max_pool and average_pool of every implementation against the reference.
#include "qna/kernels/pool.h"

#include "qna/kernels/depthwise.h"
#include "qna/kernels/network_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

enum class Reduction { kDepthwise, kMax, kMaxMasked, kAverage };
constexpr Reduction kReductions[] = {Reduction::kDepthwise, Reduction::kMax, Reduction::kMaxMasked,
                                     Reduction::kAverage};

struct ReductionProblem {
  ReductionProblem(const ConvolutionShape& shape_in, Reduction reduction_in)
      : shape(shape_in), reduction(reduction_in) {
    x = normal_floats(shape.pixels() * shape.in_features, 1);
    weight = normal_floats(shape.taps() * shape.in_features, 2);
    if (reduction == Reduction::kMaxMasked) mask = random_mask(shape.pixels(), 3);
  }

  std::vector<double> run(const Implementation& implementation, int workers) const {
    ThreadRuntime runtime(workers);
    return collect_guarded<float>(shape.windows() * shape.in_features, [&](float* y) {
      const PoolArgs pool{.shape = shape, .x = x.data(), .mask = mask.or_null(), .y = y};
      if (reduction == Reduction::kDepthwise) {
        implementation.depthwise({shape, x.data(), weight.data(), y}, runtime);
      } else if (reduction == Reduction::kAverage) {
        implementation.average_pool(pool, runtime);
      } else {
        implementation.max_pool(pool, runtime);
      }
    });
  }

  ReductionProblem image(int64_t b) const {
    ReductionProblem one = *this;
    one.shape.batch = 1;
    one.x = x.part(b, x.size() / shape.batch);
    one.mask = mask.part(b, mask.size() / shape.batch);
    return one;
  }

  std::string text() const {
    return fmt::format("reduction {} {}", static_cast<int>(reduction), testing::text(shape));
  }

  // A maximum is one of the values. Sums of `taps` values of order 1, each addition rounded by
  // 2^-24 of the sum so far.
  double tolerance() const {
    const bool exact = reduction == Reduction::kMax || reduction == Reduction::kMaxMasked;
    return exact ? 0 : 5 * static_cast<double>(shape.taps() + 4) * 0x1p-24;
  }

  ConvolutionShape shape;
  Reduction reduction;
  OddInput<float> x, weight;
  OddInput<uint8_t> mask;  // empty: none
};

void compare(const ReductionProblem& problem) { compare_all(problem, problem.tolerance()); }

TEST(Pool, Shapes) {
  for (const Reduction reduction : kReductions)
    for (const int64_t features : {1, 5, 16, 35})
      for (const ConvolutionShape& shape : window_shapes(features)) {
        compare({shape, reduction});
        if (HasFailure()) return;
      }
}

TEST(Pool, EveryFeatureTail) {
  for (const Reduction reduction : kReductions)
    for (int64_t features = 1; features <= 70 && !HasFailure(); ++features) {
      const ConvolutionShape s{.batch = 2,
                               .height = 4,
                               .width = 9,
                               .in_features = features,
                               .kernel_h = 3,
                               .kernel_w = 3,
                               .pad_top = 1,
                               .pad_left = 1};
      compare({with_out_size(s), reduction});
    }
}

TEST(Pool, SameBitsForAnyWorkersAndAlone) {
  for (const Reduction reduction : kReductions) {
    const ConvolutionShape s{.batch = 3,
                             .height = 11,
                             .width = 13,
                             .in_features = 21,
                             .kernel_h = 5,
                             .kernel_w = 5,
                             .stride_h = 2,
                             .pad_top = 2,
                             .pad_left = 2};
    const ReductionProblem problem(with_out_size(s), reduction);
    expect_same_bits_for_any_workers(problem);
    expect_same_bits_alone(problem, 3);
  }
}

TEST(Pool, NoImage) {
  for (const Reduction reduction : kReductions)
    for (const Implementation* implementation : simd_implementations()) {
      const ReductionProblem problem({.batch = 0, .in_features = 3}, reduction);
      EXPECT_TRUE(problem.run(*implementation, 2).empty());
    }
}

// The whole map as one window.
TEST(Pool, GlobalMean) {
  ConvolutionShape s{.batch = 2, .height = 30, .width = 40, .in_features = 20, .kernel_h = 30};
  s.kernel_w = 40;
  compare({s, Reduction::kAverage});
}

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
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    EXPECT_EQ(problem.run(implementation, 1), std::vector<double>{10});
  }
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
      if (problem.mask[n] == 0) std::fill_n(problem.x.data() + n * 19, 19, kNan);
    }
    const std::vector<double> y = problem.run(reference(), 1);
    EXPECT_EQ(std::count(y.begin(), y.end(), 0.0) > 0, true);
    EXPECT_EQ(std::count_if(y.begin(), y.end(), [](double v) { return std::isnan(v) || v > 0; }),
              0);
    compare(problem);
  }
}

TEST(Pool, NanAndInfinity) {
  for (const Reduction reduction : kReductions)
    for (const float poison : {kNan, kInfinity, -kInfinity}) {
      const ConvolutionShape s{.height = 5,
                               .width = 9,
                               .in_features = 18,
                               .kernel_h = 3,
                               .kernel_w = 3,
                               .pad_top = 1,
                               .pad_left = 1};
      ReductionProblem problem(with_out_size(s), reduction);
      problem.x[(2 * 9 + 3) * 18 + 1] = poison;
      problem.x[(2 * 9 + 3) * 18 + 17] = poison;
      problem.x[3] = poison;
      problem.x[18 + 3] = 1;  // beside it, before and behind in the order of taps
      compare(problem);
    }
}

// All of a window -inf is -inf, not 0.
TEST(Pool, MaximumOfMinusInfinity) {
  ReductionProblem problem(
      {.height = 1, .width = 2, .in_features = 17, .kernel_h = 1, .kernel_w = 2}, Reduction::kMax);
  std::fill(problem.x.begin(), problem.x.end(), -kInfinity);
  for (const Implementation* implementation : simd_implementations()) {
    EXPECT_EQ(problem.run(*implementation, 1), std::vector<double>(17, -kInfinity));
  }
}

}  // namespace
}  // namespace qna::kernels::testing
