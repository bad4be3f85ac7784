// 16-bit storage: the arithmetic is float32, so a result is the float32 result from the same
// (rounded) inputs, rounded once.
#include "qna/kernels/layer_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

template <typename T>
void compare_window(const WindowShape& shape, const ProblemOptions& options) {
  const WindowProblem<T> problem(shape, options);
  WindowProblem<float> wide(shape, options);
  wide.scores = widen(problem.scores);
  wide.values = widen(problem.values);
  wide.grad_out = widen(problem.grad_out);
  wide.bias = problem.bias;
  wide.tap_weights = problem.tap_weights;
  wide.mask = problem.mask;
  const WindowResult expected = run_reference(wide);
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    SCOPED_TRACE(std::string(implementation.name) + " " + text(shape) + " " + text(options));
    const WindowResult actual = run_implementation(implementation, problem);
    expect_rounded<T>(actual.out, expected.out, "out");
    expect_rounded<T>(actual.grad_scores, expected.grad_scores, "grad_scores");
    expect_rounded<T>(actual.grad_values, expected.grad_values, "grad_values");
    // The tables are float32 and must not be rounded at all.
    EXPECT_TRUE(near_by_scale(actual.grad_bias, expected.grad_bias, kArithmetic));
    EXPECT_TRUE(near_by_scale(actual.grad_tap_weights, expected.grad_tap_weights, kArithmetic));
  }
}

template <typename T>
void compare_layer(const WindowShape& shape, const LayerOptions& options) {
  const LayerProblem<T> problem(shape, options);
  LayerProblem<float> wide(shape, options);
  wide.x = widen(problem.x);
  const std::vector<double> expected = wide.run(&layer_forward_reference<float>);
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    SCOPED_TRACE(std::string(implementation.name) + " " + text(shape) + " " + text(options));
    expect_rounded<T>(problem.run(implementation), expected, "y");
  }
}

template <typename T>
class HalfPrecision : public ::testing::Test {};
using StorageTypes = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(HalfPrecision, StorageTypes);

TYPED_TEST(HalfPrecision, WindowAttention) {
  RandomProblems random(16);
  for (int round = 0; round < 120 && !this->HasFailure(); ++round) {
    const WindowShape shape = random.shape();
    compare_window<TypeParam>(shape, random.options());
  }
}

TYPED_TEST(HalfPrecision, WideAndTallMaps) {
  compare_window<TypeParam>({.height = 3,
                             .width = 700,
                             .heads = 8,
                             .head_dim = 4,
                             .queries = 2,
                             .pad_top = 1,
                             .pad_bottom = 1,
                             .pad_left = 1,
                             .pad_right = 1},
                            {.mask = true});
  compare_window<TypeParam>({.height = 83,
                             .width = 5,
                             .heads = 2,
                             .head_dim = 3,
                             .queries = 2,
                             .kernel_h = 5,
                             .pad_top = 2,
                             .pad_bottom = 2,
                             .pad_left = 1},
                            {});
}

TYPED_TEST(HalfPrecision, Layer) {
  RandomProblems random(17);
  for (int round = 0; round < 120 && !this->HasFailure(); ++round) {
    const WindowShape shape = random.shape();
    compare_layer<TypeParam>(shape, {.in_features = random.between(1, 70),
                                     .out_features = random.between(1, 70),
                                     .upsample = shape.separate ? random.between(2, 3) : 1,
                                     .value_bias = random.coin(),
                                     .out_bias = random.coin(),
                                     .bias = random.coin(),
                                     .tap_weights = random.coin(),
                                     .mask = random.coin(),
                                     .seed = static_cast<uint32_t>(round + 1)});
  }
  // More pixels than are converted at a time.
  compare_layer<TypeParam>({.height = 3,
                            .width = 131,
                            .heads = 4,
                            .head_dim = 4,
                            .queries = 2,
                            .pad_top = 1,
                            .pad_bottom = 1,
                            .pad_left = 1,
                            .pad_right = 1},
                           {.in_features = 20, .out_features = 21});
}

// The authors' exp overflows half precision at 11: not here.
TYPED_TEST(HalfPrecision, LargeScores) {
  const WindowShape shape{.height = 6,
                          .width = 11,
                          .heads = 5,
                          .head_dim = 3,
                          .queries = 3,
                          .pad_top = 1,
                          .pad_bottom = 1,
                          .pad_left = 1,
                          .pad_right = 1};
  for (const float scale : {10.0f, 100.0f, 5e3f}) {  // float16 ends at 65504
    WindowProblem<TypeParam> problem(shape, {.bias = false});
    WindowProblem<float> wide(shape, {.bias = false});
    for (TypeParam& score : problem.scores) {
      score = from_float<TypeParam>(to_float(score) * scale);
    }
    wide.scores = widen(problem.scores);
    wide.values = widen(problem.values);
    wide.grad_out = widen(problem.grad_out);
    wide.tap_weights = problem.tap_weights;
    const WindowResult expected = run_reference(wide);
    for (const Implementation* implementation : simd_implementations()) {
      SCOPED_TRACE(std::string(implementation->name) + " " + std::to_string(scale));
      const WindowResult actual = run_implementation(*implementation, problem);
      expect_rounded<TypeParam>(actual.out, expected.out, "out");
      expect_rounded<TypeParam>(actual.grad_scores, expected.grad_scores, "grad_scores");
    }
  }
}

}  // namespace
}  // namespace qna::kernels::testing
