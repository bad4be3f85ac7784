// The operator's numbers: values, gradients and second gradients, against its two composite forms.
#include "qna/ops/window_attention.h"
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include "qna/ops/window_problem_testonly.h"

namespace qna::ops::testing {
namespace {

const auto* const kOneThread = ::testing::AddGlobalTestEnvironment(new OneThread);

// float32 sums of some hundred terms of order 1; half of them cancel in a gradient.
constexpr double kFloat = 2e-5;
// The same in float64.
constexpr double kDouble = 1e-12;

TEST(WindowAttentionOp, Float32AgainstGatherInFloat64) {
  for (const WindowCase& c : window_cases()) {
    SCOPED_TRACE(c.what);
    const WindowInputs inputs = WindowInputs::random(c);
    const auto expected = with_gradients(run_gather, inputs, c, at::kDouble);
    expect_all_near(with_gradients(run_composite, inputs, c, at::kFloat), expected, kFloat);
    for (const std::string& name : supported_implementations()) {
      SCOPED_TRACE(name);
      ForcedImplementation forced(name);
      expect_all_near(with_gradients(run_op, inputs, c, at::kFloat), expected, kFloat);
      EXPECT_EQ(kernels::last_implementation(), name);
      // Without gradients, the same.
      torch::NoGradGuard no_grad;
      EXPECT_TRUE(near(run_op(inputs.as(at::kFloat), c), expected[0], kFloat, 1));
    }
  }
}

TEST(WindowAttentionOp, Float64AgainstCompositeAndGather) {
  for (const WindowCase& c : window_cases()) {
    SCOPED_TRACE(c.what);
    const WindowInputs inputs = WindowInputs::random(c);
    const auto expected = with_gradients(run_gather, inputs, c, at::kDouble);
    expect_all_near(with_gradients(run_composite, inputs, c, at::kDouble), expected, kDouble);
    expect_all_near(with_gradients(run_op, inputs, c, at::kDouble), expected, kDouble);
  }
}

// Autograd of the composite against central differences along random directions: step^2 and
// 1e-16 / step are both 1e-10.
TEST(WindowAttentionOp, Float64GradientsAgainstDifferences) {
  constexpr double kStep = 1e-5;
  for (const WindowCase& c : window_cases()) {
    SCOPED_TRACE(c.what);
    const WindowInputs inputs = WindowInputs::random(c);
    const auto results = with_gradients(run_op, inputs, c, at::kDouble);
    const at::Tensor grad_out = random_like(results[0], 7);
    torch::NoGradGuard no_grad;
    const auto loss = [&] { return (run_op(inputs, c) * grad_out).sum().item<double>(); };
    for (size_t i = 0; i < inputs.given().size(); ++i) {
      at::Tensor input = inputs.given()[i];
      for (uint64_t seed = 0; seed < 12; ++seed) {
        const at::Tensor direction = random_like(input, 100 + seed);
        input.add_(direction, kStep);
        const double above = loss();
        input.sub_(direction, 2 * kStep);
        const double below = loss();
        input.add_(direction, kStep);
        const double slope = (results[i + 1] * direction).sum().item<double>();
        EXPECT_NEAR((above - below) / (2 * kStep), slope, 1e-7 * std::max(1.0, std::abs(slope)))
            << "input " << i;
      }
    }
  }
}

// Gradients of a random sum of the first gradients, with respect to everything, grad_out too.
std::vector<at::Tensor> second_gradients(const WindowFunction& function, const WindowInputs& inputs,
                                         const WindowCase& c, at::ScalarType type) {
  const WindowInputs in = inputs.as(type);
  const at::Tensor out = function(in, c);
  const at::Tensor grad_out = random_like(out, 7).requires_grad_();
  const auto first = torch::autograd::grad({out}, in.given(), {grad_out}, std::nullopt,
                                           /*create_graph=*/true);
  at::Tensor sum = torch::zeros({}, type);
  for (size_t i = 0; i < first.size(); ++i) {
    sum = sum + (first[i] * random_like(first[i], 11 + i)).sum();
  }
  std::vector<at::Tensor> wanted = in.given();
  wanted.push_back(grad_out);
  return torch::autograd::grad({sum}, wanted, {}, std::nullopt, false, /*allow_unused=*/true);
}

// Inputs that are computed from each other: with and without create_graph the same gradients.
TEST(WindowAttentionOp, CreateGraphWithDependentInputs) {
  torch::manual_seed(1);
  const at::Tensor scores = torch::randn({1, 5, 6, 3, 3}, torch::requires_grad());
  const at::Tensor grad = torch::randn({1, 3, 4, 3, 3});
  const auto gradient = [&](bool create_graph) {
    const at::Tensor z = window_attention(scores, scores * 2, {}, {}, {}, WindowGeometry{});
    return torch::autograd::grad({z}, {scores}, {grad}, true, create_graph)[0];
  };
  EXPECT_LT((gradient(true) - gradient(false)).abs().max().item<double>(), 1e-5);
}

TEST(WindowAttentionOp, DoubleBackward) {
  for (const WindowCase& c : window_cases()) {
    SCOPED_TRACE(c.what);
    const WindowInputs inputs = WindowInputs::random(c);
    const auto expected = second_gradients(run_composite, inputs, c, at::kDouble);
    expect_all_near(second_gradients(run_op, inputs, c, at::kDouble), expected, kDouble);
    // A second gradient has more terms, and more that cancel.
    expect_all_near(second_gradients(run_op, inputs, c, at::kFloat), expected, 10 * kFloat);
  }
}

// 16-bit maps: float32 arithmetic from the rounded inputs, then one rounding.
TEST(WindowAttentionOp, HalfPrecision) {
  for (const auto& [type, rounding] :
       {std::pair(at::kBFloat16, 0x1p-8), std::pair(at::kHalf, 0x1p-11)}) {
    for (const WindowCase& c : window_cases()) {
      SCOPED_TRACE(std::string(c10::toString(type)) + " " + c.what);
      const WindowInputs rounded = WindowInputs::random(c).as(type, false);
      const auto expected =
          with_gradients(run_gather, rounded.as(at::kDouble, false), c, at::kDouble);
      const auto actual = with_gradients(run_op, rounded, c, type);
      for (const at::Tensor& tensor : actual) EXPECT_EQ(tensor.scalar_type(), type);
      expect_all_near(actual, expected, rounding + kFloat);
    }
  }
}

// Small tables may stay in float32 beside 16-bit maps, and then their gradients do too.
TEST(WindowAttentionOp, TablesKeepTheirDtype) {
  const WindowCase& c = window_cases()[0];
  WindowInputs in = WindowInputs::random(c).as(at::kBFloat16);
  in.bias = leaf(*in.bias, at::kFloat);
  in.tap_weights = leaf(*in.tap_weights, at::kDouble);
  run_op(in, c).sum().backward();
  EXPECT_EQ(in.scores.grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(in.bias->grad().scalar_type(), at::kFloat);
  EXPECT_EQ(in.tap_weights->grad().scalar_type(), at::kDouble);
}

// The composite shifts by the map's maximum; windows far below it must be found and done exactly.
TEST(WindowAttentionOp, CompositeIsStable) {
  for (const double apart : {50.0, 200.0, 1e4, 1e30})
    for (const WindowCase& c : window_cases()) {
      if (c.map[0] == 0) continue;
      SCOPED_TRACE(std::string(c.what) + " " + std::to_string(apart));
      const WindowInputs inputs = WindowInputs::random(c);
      inputs.scores.narrow(2, 0, (c.map[2] + 1) / 2).sub_(apart);
      inputs.scores.narrow(1, 0, (c.map[1] + 1) / 2).sub_(apart / 2);
      // In float64: the truth. In float32 the scores themselves are coarser.
      const auto expected = with_gradients(run_gather, inputs, c, at::kDouble);
      for (const at::Tensor& tensor : expected) EXPECT_TRUE(tensor.isfinite().all().item<bool>());
      expect_all_near(with_gradients(run_composite, inputs, c, at::kDouble), expected, 1e-10);
      const WindowInputs coarse = inputs.as(at::kFloat, false).as(at::kDouble, false);
      const auto coarse_expected = with_gradients(run_gather, coarse, c, at::kDouble);
      expect_all_near(with_gradients(run_composite, coarse, c, at::kFloat), coarse_expected,
                      kFloat);
      expect_all_near(with_gradients(run_op, coarse, c, at::kFloat), coarse_expected, kFloat);
    }
}

// What a masked position holds does not matter, to values and gradients.
TEST(WindowAttentionOp, MaskedPoison) {
  const WindowFunction functions[] = {run_op, run_composite, run_gather};
  for (const WindowCase& c : window_cases()) {
    if (!c.parts.mask) continue;
    for (const at::ScalarType type : {at::kFloat, at::kDouble})
      for (const double poison :
           {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        SCOPED_TRACE(std::string(c.what) + " " + c10::toString(type));
        const WindowInputs inputs = WindowInputs::random(c);
        WindowInputs poisoned = inputs.as(at::kDouble, false);
        const at::Tensor masked = inputs.mask->logical_not().unsqueeze(-1).unsqueeze(-1);
        poisoned.scores.masked_fill_(masked, poison);
        poisoned.values.masked_fill_(masked, poison);
        for (const WindowFunction& function : functions) {
          expect_all_near(with_gradients(function, poisoned, c, type),
                          with_gradients(function, inputs, c, type), kDouble);
        }
      }
  }
}

// A score of -inf takes its tap out for that query and head; a window without taps gives 0.
TEST(WindowAttentionOp, ScoresOfMinusInfinity) {
  const WindowCase& c = window_cases()[0];
  const WindowInputs inputs = WindowInputs::random(c);
  inputs.scores.masked_fill_(random_like(inputs.scores, 3) > 0.5,
                             -std::numeric_limits<double>::infinity());
  inputs.scores.select(3, 0).fill_(-std::numeric_limits<double>::infinity());  // all of a query
  const auto expected = with_gradients(run_gather, inputs, c, at::kDouble);
  for (const at::Tensor& tensor : expected) EXPECT_TRUE(tensor.isfinite().all().item<bool>());
  expect_all_near(with_gradients(run_composite, inputs, c, at::kDouble), expected, kDouble);
  expect_all_near(with_gradients(run_op, inputs, c, at::kFloat), expected, kFloat);
}

}  // namespace
}  // namespace qna::ops::testing
