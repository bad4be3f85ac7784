// The operator's numbers: values, gradients and second gradients, against its definition and its
// composite form.
#include "qna/ops/sasa.h"
#include <torch/csrc/autograd/autograd.h>

#include "qna/ops/sasa_problem_testonly.h"

namespace qna::ops::testing {
namespace {

// float32 sums of some hundred terms of order 1; half of them cancel in a gradient.
constexpr double kFloat = 2e-5;
// The same in float64.
constexpr double kSasaDouble = 1e-12;

TEST(SasaOp, Float32AgainstTheDefinitionInFloat64) {
  for (const SasaCase& c : sasa_cases()) {
    SCOPED_TRACE(c.what);
    const SasaInputs inputs = SasaInputs::random(c);
    const auto expected = with_gradients(run_definition, inputs, c, at::kDouble);
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

TEST(SasaOp, Float64AgainstTheDefinition) {
  for (const SasaCase& c : sasa_cases()) {
    SCOPED_TRACE(c.what);
    const SasaInputs inputs = SasaInputs::random(c);
    const auto expected = with_gradients(run_definition, inputs, c, at::kDouble);
    expect_all_near(with_gradients(run_composite, inputs, c, at::kDouble), expected, kSasaDouble);
    expect_all_near(with_gradients(run_op, inputs, c, at::kDouble), expected, kSasaDouble);
  }
}

// Autograd of the composite against central differences along random directions: step^2 and
// 1e-16 / step are both 1e-10.
TEST(SasaOp, Float64GradientsAgainstDifferences) {
  constexpr double kStep = 1e-5;
  for (const SasaCase& c : sasa_cases()) {
    SCOPED_TRACE(c.what);
    const SasaInputs inputs = SasaInputs::random(c);
    const auto results = with_gradients(run_op, inputs, c, at::kDouble);
    const at::Tensor grad_out = random_like(results[0], 7);
    torch::NoGradGuard no_grad;
    const auto loss = [&] { return (run_op(inputs, c) * grad_out).sum().item<double>(); };
    for (size_t i = 0; i < inputs.given().size(); ++i) {
      at::Tensor input = inputs.given()[i];
      for (uint64_t seed = 0; seed < 6; ++seed) {
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
std::vector<at::Tensor> second_gradients(const SasaFunction& function, const SasaInputs& inputs,
                                         const SasaCase& c, at::ScalarType type) {
  const SasaInputs in = inputs.as(type);
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

TEST(SasaOp, DoubleBackward) {
  for (const SasaCase& c : sasa_cases()) {
    SCOPED_TRACE(c.what);
    const SasaInputs inputs = SasaInputs::random(c);
    const auto expected = second_gradients(run_composite, inputs, c, at::kDouble);
    // A second gradient has more terms, and more that cancel.
    expect_all_near(second_gradients(run_op, inputs, c, at::kFloat), expected, 10 * kFloat);
  }
}

// q, k and v computed from each other: with and without create_graph the same gradients.
TEST(SasaOp, CreateGraphWithDependentInputs) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({1, 5, 6, 3, 4}, torch::requires_grad());
  const WindowGeometry geometry{.padding = {1, 1, 1, 1}};
  const at::Tensor grad = torch::randn({1, 5, 6, 3, 4});
  const auto gradient = [&](bool create_graph) {
    return torch::autograd::grad({sasa(x, x, x * 2, {}, {}, geometry)}, {x}, {grad}, true,
                                 create_graph)[0];
  };
  EXPECT_LT((gradient(true) - gradient(false)).abs().max().item<double>(), 1e-5);
}

// 16-bit maps: float32 arithmetic from the rounded inputs, then one rounding.
TEST(SasaOp, HalfPrecision) {
  for (const auto& [type, rounding] :
       {std::pair(at::kBFloat16, 0x1p-8), std::pair(at::kHalf, 0x1p-11)}) {
    for (const SasaCase& c : sasa_cases()) {
      SCOPED_TRACE(std::string(c10::toString(type)) + " " + c.what);
      const SasaInputs rounded = SasaInputs::random(c).as(type, false);
      const auto expected =
          with_gradients(run_definition, rounded.as(at::kDouble, false), c, at::kDouble);
      const auto actual = with_gradients(run_op, rounded, c, type);
      for (const at::Tensor& tensor : actual) EXPECT_EQ(tensor.scalar_type(), type);
      expect_all_near(actual, expected, rounding + kFloat);
    }
  }
}

// The bias may stay in float32 beside 16-bit maps, and then its gradient does too.
TEST(SasaOp, BiasKeepsItsDtype) {
  const SasaCase& c = sasa_cases()[0];
  SasaInputs in = SasaInputs::random(c).as(at::kBFloat16);
  in.bias = leaf(*in.bias, at::kFloat);
  run_op(in, c).sum().backward();
  EXPECT_EQ(in.q.grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(in.bias->grad().scalar_type(), at::kFloat);
}

// Scores of +-1e4 and more: in float64 the truth; float32 rounds them at 2^-23 of their size.
TEST(SasaOp, LargeScores) {
  for (const double scale : {1e2, 1e4})
    for (const SasaCase& c : sasa_cases()) {
      SCOPED_TRACE(std::string(c.what) + " " + std::to_string(scale));
      SasaInputs inputs = SasaInputs::random(c);
      inputs.q.mul_(scale);
      const auto expected = with_gradients(run_definition, inputs, c, at::kDouble);
      expect_all_near(with_gradients(run_composite, inputs, c, at::kDouble), expected, 1e-10);
      const double rounding = 32 * scale * 0x1p-23;
      expect_all_near(with_gradients(run_composite, inputs, c, at::kFloat), expected, rounding);
      expect_all_near(with_gradients(run_op, inputs, c, at::kFloat), expected, rounding);
    }
}

// What a masked position holds does not matter, to values and gradients.
TEST(SasaOp, MaskedPoison) {
  const SasaFunction functions[] = {run_op, run_composite};
  for (const SasaCase& c : sasa_cases()) {
    if (!c.mask) continue;
    for (const at::ScalarType type : {at::kFloat, at::kDouble})
      for (const double poison :
           {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        SCOPED_TRACE(std::string(c.what) + " " + c10::toString(type));
        const SasaInputs inputs = SasaInputs::random(c);
        const SasaInputs poisoned = inputs.as(at::kDouble, false);
        const at::Tensor masked = inputs.mask->logical_not().unsqueeze(-1).unsqueeze(-1);
        poisoned.k.masked_fill_(masked, poison);
        poisoned.v.masked_fill_(masked, poison);
        for (const SasaFunction& function : functions) {
          expect_all_near(with_gradients(function, poisoned, c, type),
                          with_gradients(function, inputs, c, type), kSasaDouble);
        }
      }
  }
}

// A bias of -inf takes its tap out for that head; a head without taps gives 0.
TEST(SasaOp, BiasOfMinusInfinity) {
  const SasaCase& c = sasa_cases()[0];
  const SasaInputs inputs = SasaInputs::random(c);
  const double infinity = std::numeric_limits<double>::infinity();
  inputs.bias->select(2, 0).fill_(-infinity);
  inputs.bias->select(2, 1).select(0, 1).fill_(-infinity);
  const auto expected = with_gradients(run_composite, inputs, c, at::kDouble);
  for (const at::Tensor& tensor : expected) EXPECT_TRUE(tensor.isfinite().all().item<bool>());
  EXPECT_EQ(expected[0].select(3, 0).abs().max().item<double>(), 0);
  expect_all_near(with_gradients(run_op, inputs, c, at::kFloat), expected, kFloat);
  ForcedImplementation forced("reference");
  expect_all_near(with_gradients(run_op, inputs, c, at::kFloat), expected, kFloat);
}

}  // namespace
}  // namespace qna::ops::testing
