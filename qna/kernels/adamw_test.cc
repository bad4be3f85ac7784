// AdamW's step and the norm of gradients: every implementation against the reference.
#include "qna/kernels/adamw.h"

#include <numeric>

#include "qna/kernels/sweep_testonly.h"

namespace qna::kernels::testing {
namespace {

// Parameters of these sizes; every third has no gradient in this step.
struct StepProblem {
  std::vector<int64_t> counts;
  double gradient_factor = 1;
  bool average = true;
  int64_t step = 3;

  Results run(int workers = 1) const {
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const OddInput<float> gradients(normal_floats(all, 1));
    GuardedOutput<float> weight("weight", all), mean("mean", all), square("square mean", all),
        running("average", all);
    uint32_t seed = 2;
    for (GuardedOutput<float>* state : {&weight, &mean, &square, &running}) {
      const std::vector<float> before = normal_floats(all, seed++);
      std::copy(before.begin(), before.end(), state->data());
    }
    for (int64_t i = 0; i < all; ++i) square.data()[i] = std::abs(square.data()[i]);
    std::vector<AdamWParameter> parameters;
    int64_t at = 0;
    for (const int64_t count : counts) {
      const size_t i = parameters.size();
      parameters.push_back({.count = count,
                            .weight = weight.data() + at,
                            .gradient = i % 3 == 2 ? nullptr : gradients.data() + at,
                            .mean = mean.data() + at,
                            .square_mean = square.data() + at,
                            .average = average ? running.data() + at : nullptr,
                            .lr = 0.01 * static_cast<double>(i + 1),
                            .decay = i % 2 == 0 ? 0.3 : 0,
                            .step = step});
      at += count;
    }
    ThreadRuntime runtime(workers);
    adamw({.parameters = parameters,
           .betas = {0.9, 0.99},
           .epsilon = 1e-8,
           .gradient_factor = gradient_factor,
           .average_decay = 0.9},
          runtime);
    // Each is a few roundings away from the exact one.
    return {{.by_scale = 4 * 0x1p-23}, {weight.take(), mean.take(), square.take(), running.take()}};
  }

  std::string text() const {
    return fmt::format("{} parameters, factor {}, step {}", counts.size(), gradient_factor, step);
  }
};

struct AdamWStep {
  static void near(const auto& visit) {
    for (const int64_t count : {1, 3, 4, 7, 8, 15, 16, 17, 33, 100}) {
      visit("tails", StepProblem{{count, 5, 1, count}});
    }
    visit("clipped", StepProblem{.counts = {40, 3, 9}, .gradient_factor = 0.125});
    visit("no running mean", StepProblem{.counts = {40, 3, 9}, .average = false});
    visit("first step", StepProblem{.counts = {40, 3, 9}, .step = 1});
    visit("late step", StepProblem{.counts = {40, 3, 9}, .step = 100000});
  }
  static void bits(const auto& visit) { visit("many parts", StepProblem{{70001, 3, 40000, 900}}); }
  static StepProblem nothing() { return {}; }
};
INSTANTIATE_TYPED_TEST_SUITE_P(AdamW, Operator, AdamWStep);

double square_sum(const std::vector<float>& gradient, int workers = 1) {
  AdamWParameter parameter{};
  parameter.count = static_cast<int64_t>(gradient.size());
  parameter.gradient = gradient.data();
  AdamWParameter without = parameter;
  without.gradient = nullptr;
  const AdamWParameter both[] = {without, parameter};
  ThreadRuntime runtime(workers);
  return gradient_square_sum(both, runtime);
}

TEST(GradientSquareSum, IsTheSameForAnyWorkersAndNearTheReference) {
  const std::vector<float> gradient = normal_floats(100003, 1);
  double expected = 0;
  for (const float g : gradient) expected += static_cast<double>(g) * g;
  for_each_implementation([&] {
    EXPECT_NEAR(square_sum(gradient), expected, 1e-5 * expected);
    EXPECT_EQ(square_sum(gradient, 3), square_sum(gradient));
  });
}

TEST(GradientSquareSum, ShowsWhatIsNotFinite) {
  for_each_implementation([] {
    for (const float bad : {kInfinity, -kInfinity, kNan}) {
      std::vector<float> gradient(37, 1.0f);
      gradient[35] = bad;
      EXPECT_FALSE(std::isfinite(square_sum(gradient)));
    }
  });
}

}  // namespace
}  // namespace qna::kernels::testing
