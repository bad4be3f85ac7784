// bilinear of every implementation against the reference.
#include "qna/kernels/bilinear.h"

#include "qna/kernels/network_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

struct BilinearProblem {
  BilinearProblem(int64_t batch_in, int64_t height_in, int64_t width_in, int64_t features_in,
                  int64_t factor_in)
      : batch(batch_in),
        height(height_in),
        width(width_in),
        features(features_in),
        factor(factor_in),
        x(normal_floats(batch * height * width * features, 1)) {}

  std::vector<double> run(const Implementation& implementation, int workers) const {
    ThreadRuntime runtime(workers);
    return collect_guarded<float>(x.size() * factor * factor, [&](float* y) {
      implementation.bilinear({batch, height, width, features, factor, x.data(), y}, runtime);
    });
  }
  BilinearProblem image(int64_t b) const {
    BilinearProblem one = *this;
    one.batch = 1;
    one.x = x.part(b, x.size() / batch);
    return one;
  }
  std::string text() const {
    return fmt::format("{} x {} x {} x {}, factor {}", batch, height, width, features, factor);
  }

  int64_t batch, height, width, features, factor;
  OddInput<float> x;
};

// A mean of four values up to 5: weights and sums are rounded about six times by 2^-24.
void compare(const BilinearProblem& problem) { compare_all(problem, 6 * 5 * 0x1p-24); }

TEST(Bilinear, MapsAndFactors) {
  for (int64_t height = 1; height <= 5; ++height)
    for (const int64_t width : {1, 2, 7})
      for (int64_t factor = 1; factor <= 5; ++factor)
        for (const int64_t features : {1, 3, 16, 20}) {
          compare({2, height, width, features, factor});
          if (HasFailure()) return;
        }
}

TEST(Bilinear, EveryFeatureTail) {
  for (int64_t features = 1; features <= 70 && !HasFailure(); ++features) {
    compare({1, 3, 4, features, 2});
  }
}

// From torch.nn.functional.interpolate(mode="bilinear", align_corners=False).
TEST(Bilinear, AsPyTorch) {
  BilinearProblem problem(1, 2, 2, 1, 2);
  for (const int64_t i : {0, 1, 2, 3}) problem.x[i] = static_cast<float>(i);
  const std::vector<double> expected = {0,   .25,  .75,  1,   .5, .75,  1.25, 1.5,
                                        1.5, 1.75, 2.25, 2.5, 2,  2.25, 2.75, 3};
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    EXPECT_EQ(problem.run(implementation, 1), expected) << implementation.name;
  }
  BilinearProblem three(1, 1, 2, 1, 3);
  three.x[0] = 0;
  three.x[1] = 3;
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    const std::vector<double> y = three.run(implementation, 1);
    EXPECT_TRUE(near({y.begin(), y.begin() + 6}, {0, 0, 1, 2, 3, 3}, 1e-6)) << implementation.name;
  }
}

TEST(Bilinear, FactorOneIsACopy) {
  const BilinearProblem problem(2, 3, 4, 21, 1);
  for (const Implementation* implementation : simd_implementations()) {
    EXPECT_EQ(problem.run(*implementation, 1),
              std::vector<double>(problem.x.data(), problem.x.data() + problem.x.size()));
  }
}

TEST(Bilinear, SameBitsForAnyWorkersAndAlone) {
  const BilinearProblem problem(3, 5, 6, 21, 3);
  expect_same_bits_for_any_workers(problem);
  expect_same_bits_alone(problem, 3);
}

// Also where its weight is 0, as in PyTorch.
TEST(Bilinear, Nan) {
  for (const float poison : {kNan, kInfinity}) {
    BilinearProblem problem(1, 4, 5, 18, 2);
    problem.x[(2 * 5 + 3) * 18 + 17] = poison;
    compare(problem);
  }
}

TEST(Bilinear, NoImage) {
  for (const Implementation* implementation : simd_implementations()) {
    EXPECT_TRUE(BilinearProblem(0, 4, 5, 3, 2).run(*implementation, 2).empty());
  }
}

}  // namespace
}  // namespace qna::kernels::testing
