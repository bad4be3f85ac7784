// The layer's numbers, by each of its ways: fused inference, training, composite.
#include "qna/ops/layer.h"
#include <torch/csrc/autograd/autograd.h>

#include "qna/ops/layer_problem_testonly.h"

namespace qna::ops::testing {
namespace {

// Of the largest element: float32 products of few terms, of order 1.
constexpr double kOutput = 1e-5;
// Gradients are sums over all pixels that cancel in part.
constexpr double kGradient = 2e-5;
constexpr double kLayerDouble = 1e-12;

void expect_layer_near(const std::vector<at::Tensor>& actual,
                       const std::vector<at::Tensor>& expected, double output, double gradient) {
  ASSERT_EQ(actual.size(), expected.size());
  EXPECT_TRUE(near(actual[0], expected[0], output, 1)) << "y";
  for (size_t i = 1; i < actual.size(); ++i) {
    EXPECT_TRUE(near(actual[i], expected[i], gradient, 1)) << "gradient of input " << i - 1;
  }
}

TEST(LayerOp, EveryWayGivesTheSame) {
  for (const LayerCase& c : layer_cases()) {
    SCOPED_TRACE(c.what);
    const LayerInputs inputs = LayerInputs::random(c);
    const auto expected = with_gradients(run_layer_composite, inputs, c, at::kDouble);
    EXPECT_EQ(expected[0].sizes()[3], c.out_features);
    expect_layer_near(with_gradients(run_layer_composite, inputs, c, at::kFloat), expected, kOutput,
                      kGradient);
    for (const std::string& name : supported_implementations()) {
      SCOPED_TRACE(name);
      ForcedImplementation forced(name);
      expect_layer_near(with_gradients(run_layer, inputs, c, at::kFloat), expected, kOutput,
                        kGradient);
      EXPECT_EQ(kernels::last_implementation(), name);
      torch::NoGradGuard no_grad;
      EXPECT_TRUE(near(run_layer(inputs.as(at::kFloat), c), expected[0], kOutput, 1));
      EXPECT_EQ(kernels::last_implementation(), name);
    }
  }
}

TEST(LayerOp, Float64IsTheComposite) {
  for (const LayerCase& c : layer_cases()) {
    SCOPED_TRACE(c.what);
    const LayerInputs inputs = LayerInputs::random(c);
    expect_layer_near(with_gradients(run_layer, inputs, c, at::kDouble),
                      with_gradients(run_layer_composite, inputs, c, at::kDouble), kLayerDouble,
                      kLayerDouble);
  }
}

// A larger map: several bands, tasks and chunks of pixels, so that their sums meet.
TEST(LayerOp, LargerMaps) {
  const LayerCase cases[] = {
      {"one image", {1, 70, 45, 12}, 2, 8, 2, 16},
      {"images",
       {18, 9, 8, 12},
       2,
       3,
       5,
       9,
       {{5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}},
       1,
       {.value_bias = true, .out_bias = true, .mask = true}},
      {"strided", {2, 61, 30, 5}, 2, 4, 4, 8, {{3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}}},
      {"pixels no window sees",
       {1, 40, 31, 5},
       2,
       2,
       4,
       8,
       {{2, 2}, {5, 3}, {0, 0, 0, 0}, {1, 1}},
       1,
       {.value_bias = true}},
      {"wide",
       {1, 6, 400, 4},
       2,
       8,
       2,
       4,
       {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
       1,
       {.value_bias = true}},
      {"up-sampling",
       {1, 40, 21, 6},
       4,
       4,
       2,
       6,
       {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
       2,
       {.value_bias = true, .out_bias = true}},
  };
  for (const LayerCase& c : cases) {
    SCOPED_TRACE(c.what);
    const LayerInputs inputs = LayerInputs::random(c);
    expect_layer_near(with_gradients(run_layer, inputs, c, at::kFloat),
                      with_gradients(run_layer_composite, inputs, c, at::kDouble), kOutput,
                      kGradient);
  }
}

TEST(LayerOp, GradientsOnlyWhereWanted) {
  for (const LayerCase& c : layer_cases()) {
    SCOPED_TRACE(c.what);
    const LayerInputs inputs = LayerInputs::random(c);
    const auto all = with_gradients(run_layer, inputs, c, at::kFloat);
    for (size_t wanted = 0; wanted < inputs.given().size(); ++wanted) {
      const LayerInputs in = inputs.as(at::kFloat, false);
      in.given()[wanted].requires_grad_();
      const at::Tensor y = run_layer(in, c);
      ASSERT_TRUE(y.requires_grad());
      y.backward(upstream(y));
      for (size_t i = 0; i < in.given().size(); ++i) {
        EXPECT_EQ(in.given()[i].grad().defined(), i == wanted);
      }
      EXPECT_TRUE(near(in.given()[wanted].grad(), all[wanted + 1], 1e-6, 1)) << wanted;
    }
    EXPECT_FALSE(run_layer(inputs.as(at::kFloat, false), c).requires_grad());
  }
}

// Scores far apart: the fused ways and the composite must agree on the exact answer.
TEST(LayerOp, LargeScores) {
  for (const LayerCase& c : layer_cases()) {
    SCOPED_TRACE(c.what);
    LayerInputs inputs = LayerInputs::random(c);
    inputs.p.score_weight.mul_(300);
    const auto expected = with_gradients(run_layer_composite, inputs, c, at::kDouble);
    for (const at::Tensor& tensor : expected) EXPECT_TRUE(tensor.isfinite().all().item<bool>());
    // A score of 1000 is a float32 product: off by 1e-4, and so is its exponential. The gradients
    // of x are multiplied by weights of 300 in turn.
    expect_layer_near(with_gradients(run_layer, inputs, c, at::kFloat), expected, 1e-3, 1e-2);
  }
}

TEST(LayerOp, HalfPrecision) {
  for (const auto& [type, rounding] :
       {std::pair(at::kBFloat16, 0x1p-8), std::pair(at::kHalf, 0x1p-11)})
    for (const LayerCase& c : layer_cases()) {
      SCOPED_TRACE(std::string(c10::toString(type)) + " " + c.what);
      const LayerInputs rounded = LayerInputs::random(c).as(type, false);
      const auto expected =
          with_gradients(run_layer_composite, rounded.as(at::kDouble, false), c, at::kDouble);
      // What is kept for the backward pass is rounded to the maps' dtype too: two or three
      // roundings instead of one, and a score's counts in its exponential.
      const auto actual = with_gradients(run_layer, rounded, c, type);
      for (const at::Tensor& tensor : actual) EXPECT_EQ(tensor.scalar_type(), type);
      expect_layer_near(actual, expected, 2 * rounding, 6 * rounding);
      torch::NoGradGuard no_grad;
      const at::Tensor y = run_layer(rounded, c);
      EXPECT_EQ(y.scalar_type(), type);
      EXPECT_TRUE(near(y, expected[0], rounding, 1));  // one rounding, at the end
    }
}

// Weights in float32 beside a 16-bit map (as under autocast) get float32 gradients.
TEST(LayerOp, WeightsKeepTheirDtype) {
  for (const LayerCase& c : layer_cases()) {
    SCOPED_TRACE(c.what);
    LayerInputs in = LayerInputs::random(c).as(at::kFloat);
    in.x = leaf(in.x, at::kBFloat16);
    const at::Tensor y = run_layer(in, c);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    y.backward(upstream(y));
    EXPECT_EQ(in.x.grad().scalar_type(), at::kBFloat16);
    for (size_t i = 1; i < in.given().size(); ++i) {
      EXPECT_EQ(in.given()[i].grad().scalar_type(), at::kFloat);
    }
  }
}

std::vector<at::Tensor> second_gradients(const LayerFunction& function, const LayerInputs& inputs,
                                         const LayerCase& c, at::ScalarType type) {
  const LayerInputs in = inputs.as(type);
  const at::Tensor y = function(in, c);
  const at::Tensor grad_y = upstream(y).requires_grad_();
  const auto first =
      torch::autograd::grad({y}, in.given(), {grad_y}, std::nullopt, /*create_graph=*/true);
  at::Tensor sum = torch::zeros({}, type);
  for (size_t i = 0; i < first.size(); ++i) sum = sum + (first[i] * upstream(first[i], i)).sum();
  std::vector<at::Tensor> wanted = in.given();
  wanted.push_back(grad_y);
  return torch::autograd::grad({sum}, wanted, {}, std::nullopt, false, /*allow_unused=*/true);
}

TEST(LayerOp, DoubleBackward) {
  for (const LayerCase& c : layer_cases()) {
    SCOPED_TRACE(c.what);
    const LayerInputs inputs = LayerInputs::random(c);
    const auto expected = second_gradients(run_layer_composite, inputs, c, at::kDouble);
    const auto actual = second_gradients(run_layer, inputs, c, at::kFloat);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_TRUE(near(actual[i], expected[i], 10 * kGradient, 1)) << i;
    }
  }
}

// A masked pixel takes no part: what it holds changes nothing, and it gets no gradient.
TEST(LayerOp, MaskedPixelsDoNotMatter) {
  for (const LayerCase& c : layer_cases()) {
    if (!c.parts.mask) continue;
    SCOPED_TRACE(c.what);
    const LayerInputs inputs = LayerInputs::random(c);
    LayerInputs other = inputs.as(at::kDouble, false);
    const at::Tensor masked = inputs.mask->logical_not();
    other.x.masked_fill_(masked.unsqueeze(-1), 1e6);
    const auto expected = with_gradients(run_layer, inputs, c, at::kFloat);
    const auto actual = with_gradients(run_layer, other, c, at::kFloat);
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_TRUE(same(actual[i], expected[i])) << i;
    }
    EXPECT_EQ(actual[1].index({masked}).abs().sum().item<float>(), 0);
    // A NaN or infinity there (padding of a batch may hold anything) must not spread either, also
    // not as 0 * NaN into the weights' gradients.
    for (const double poison :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      other.x.masked_fill_(masked.unsqueeze(-1), poison);
      const auto poisoned = with_gradients(run_layer, other, c, at::kFloat);
      for (size_t i = 0; i < poisoned.size(); ++i) {
        EXPECT_TRUE(same(poisoned[i], expected[i])) << i;
      }
      torch::NoGradGuard no_grad;
      EXPECT_TRUE(near(run_layer(other.as(at::kFloat), c), expected[0], kOutput, 1));
    }
  }
}

}  // namespace
}  // namespace qna::ops::testing
