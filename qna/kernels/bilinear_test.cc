// bilinear of every implementation against the reference.
#include "qna/kernels/bilinear.h"

#include "qna/kernels/sweep_testonly.h"

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

  Results run(int workers = 1) const {
    ThreadRuntime runtime(workers);
    // A mean of four values up to 5: weights and sums are rounded about six times by 2^-24.
    return one_output(x.size() * factor * factor, {.absolute = 6 * 5 * 0x1p-24}, [&](float* y) {
      bilinear({batch, height, width, features, factor, x.data(), y}, runtime);
    });
  }
  int64_t count() const { return batch; }
  BilinearProblem alone(int64_t image) const {
    BilinearProblem one = *this;
    one.batch = 1;
    one.x = part_of(x, image, count());
    return one;
  }
  std::string text() const {
    return fmt::format("{} x {} x {} x {}, factor {}", batch, height, width, features, factor);
  }

  int64_t batch, height, width, features, factor;
  OddInput<float> x;
};

struct Bilinear {
  using Problem = BilinearProblem;

  static void near(const auto& visit) {
    for (int64_t height = 1; height <= 5; ++height)
      for (const int64_t width : {1, 2, 7})
        for (int64_t factor = 1; factor <= 5; ++factor)
          for (const int64_t features : {1, 3, 16, 20}) {
            visit("maps and factors", Problem(2, height, width, features, factor));
          }
    for (int64_t features = 1; features <= 70; ++features) {
      visit("feature tails", Problem(1, 3, 4, features, 2));
    }
    // Also where its weight is 0, as in PyTorch.
    for (const float poison : {kNan, kInfinity}) {
      Problem problem(1, 4, 5, 18, 2);
      problem.x[(2 * 5 + 3) * 18 + 17] = poison;
      visit("NaN and infinity", problem);
    }
  }
  static void bits(const auto& visit) { visit("bits", Problem(3, 5, 6, 21, 3)); }
  static Problem nothing() { return {0, 4, 5, 3, 2}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Bilinear, Operator, Bilinear);

// From torch.nn.functional.interpolate(mode="bilinear", align_corners=False).
TEST(Bilinear, AsPyTorch) {
  BilinearProblem two(1, 2, 2, 1, 2);
  for (const int64_t i : {0, 1, 2, 3}) two.x[i] = static_cast<float>(i);
  const std::vector<double> expected = {0,   .25,  .75,  1,   .5, .75,  1.25, 1.5,
                                        1.5, 1.75, 2.25, 2.5, 2,  2.25, 2.75, 3};
  BilinearProblem three(1, 1, 2, 1, 3);
  three.x[0] = 0;
  three.x[1] = 3;
  for_each_implementation([&] {
    EXPECT_EQ(two.run().cells(), expected);
    const std::vector<double> y = three.run().cells();
    EXPECT_TRUE(near({y.begin(), y.begin() + 6}, {0, 0, 1, 2, 3, 3}, {.absolute = 1e-6}));
  });
}

TEST(Bilinear, FactorOneIsACopy) {
  const BilinearProblem problem(2, 3, 4, 21, 1);
  for_each_simd([&] {
    EXPECT_EQ(problem.run().cells(), std::vector<double>(problem.x.begin(), problem.x.end()));
  });
}

}  // namespace
}  // namespace qna::kernels::testing
