// The layer as the first half of a block: norm before, a factor for each image and x behind it.
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>
#include "qna/ops/layer_problem_testonly.h"

namespace qna::ops::testing {
namespace {

std::vector<LayerCase> branch_cases() {
  std::vector<LayerCase> cases;
  for (LayerCase c : layer_cases()) {
    // Rows of few features are divided by small numbers, and so are their errors.
    if (c.upsample > 1 || c.map[3] < 4) continue;
    cases.push_back(c);
  }
  cases.push_back({"residual", {3, 6, 7, 10}, 2, 4, 3, 10});
  return cases;
}

LayerBranch branch_of(const LayerCase& c, at::ScalarType type) {
  LayerBranch branch{.residual = c.out_features == c.map[3] &&
                                 c.geometry.stride == std::array<int64_t, 2>{1, 1} &&
                                 c.geometry.kernel_size == std::array<int64_t, 2>{3, 3} &&
                                 c.geometry.padding == std::array<int64_t, 4>{1, 1, 1, 1}};
  if (c.map[0] > 1) {
    branch.keep = torch::arange(c.map[0]).to(type) * 0.75;  // 0 for the first image
  }
  return branch;
}

at::Tensor run_branch(const LayerInputs& in, const LayerCase& c) {
  return layer_branch(in.x, in.p, in.mask, c.geometry, branch_of(c, in.x.scalar_type()));
}

at::Tensor run_plainly(const LayerInputs& in, const LayerCase& c) {
  const LayerBranch branch = branch_of(c, in.x.scalar_type());
  LayerInputs normed = in;
  const at::Tensor centred = in.x - in.x.mean(-1, true);
  normed.x = centred / (centred.pow(2).mean(-1, true) + branch.epsilon).sqrt();
  at::Tensor y = run_layer_composite(normed, c);
  if (branch.keep.has_value()) y = y * branch.keep->view({-1, 1, 1, 1});
  return branch.residual ? y + in.x : y;
}

TEST(LayerBranchOp, FusedAndNot) {
  int residuals = 0;
  for (const LayerCase& c : branch_cases()) {
    SCOPED_TRACE(c.what);
    residuals += branch_of(c, at::kFloat).residual;
    const LayerInputs inputs = LayerInputs::random(c);
    const auto expected = with_gradients(run_plainly, inputs, c, at::kDouble);
    expect_all_near(with_gradients(run_branch, inputs, c, at::kDouble), expected, 1e-9);
    for (const std::string& name : supported_implementations()) {
      SCOPED_TRACE(name);
      const ForcedImplementation forced(name);
      const auto actual = with_gradients(run_branch, inputs, c, at::kFloat);
      expect_all_near(actual, expected, 5e-5);
      const torch::NoGradGuard no_grad;
      EXPECT_TRUE(near(run_branch(inputs.as(at::kFloat), c), expected[0], 2e-5, 1));
    }
  }
  EXPECT_GE(residuals, 1);
}

TEST(LayerBranchOp, Autocast) {
  for (const LayerCase& c : branch_cases()) {
    if (c.map[0] == 0) continue;
    SCOPED_TRACE(c.what);
    const LayerInputs inputs = LayerInputs::random(c);
    const auto expected = with_gradients(run_plainly, inputs, c, at::kDouble);
    const Autocast autocast(at::kBFloat16);
    const LayerInputs in = inputs.as(at::kFloat);
    const at::Tensor y = run_branch(in, c);
    y.backward(upstream(y));
    EXPECT_TRUE(near(y, expected[0], 0.03, 1));
    EXPECT_TRUE(near(in.x.grad(), expected[1], 0.1, 1));
  }
}

TEST(LayerBranchOp, DoubleBackward) {
  const auto second = [](const LayerFunction& function, const LayerInputs& inputs,
                         const LayerCase& c, at::ScalarType type) {
    const LayerInputs in = inputs.as(type);
    const at::Tensor y = function(in, c);
    const auto first = torch::autograd::grad({y.pow(2).sum()}, in.given(), {}, std::nullopt,
                                             /*create_graph=*/true);
    at::Tensor sum = torch::zeros({}, type);
    for (const at::Tensor& gradient : first) sum = sum + gradient.pow(2).sum();
    return torch::autograd::grad({sum}, in.given(), {}, std::nullopt, false, true);
  };
  for (const LayerCase& c : branch_cases()) {
    if (c.map[0] == 0) continue;
    SCOPED_TRACE(c.what);
    const LayerInputs inputs = LayerInputs::random(c);
    expect_all_near(second(run_branch, inputs, c, at::kFloat),
                    second(run_plainly, inputs, c, at::kDouble), 1e-3);
  }
}

TEST(LayerBranchOp, Complaints) {
  const LayerCase c = {"", {2, 6, 7, 8}, 2, 4, 3, 10};
  const LayerInputs in = LayerInputs::random(c).as(at::kFloat);
  expect_complaint([&] { layer_branch(in.x, in.p, in.mask, c.geometry, {.residual = true}); },
                   {"x", "[2, 6, 7, 8]", "6 x 7 x 10"});
  expect_complaint(
      [&] {
        layer_branch(in.x, in.p, in.mask, c.geometry,
                     {.keep = torch::ones({3}), .residual = false});
      },
      {"keep", "[3]"});
}

}  // namespace
}  // namespace qna::ops::testing
