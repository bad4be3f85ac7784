// The MLP branch as an operator: fused against the ATen form in float64, gradients of gradients,
// dtypes without a kernel, and what it complains about.
#include "qna/ops/mlp_branch.h"
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include "qna/ops/tensors_testonly.h"

namespace qna::ops::testing {
namespace {

using kernels::Activation;

struct Inputs {
  std::vector<at::Tensor> tensors;  // x and the six parameters
  OptionalTensor keep;

  static Inputs random(at::IntArrayRef x_sizes, int64_t hidden, bool with_keep) {
    torch::manual_seed(5);
    const int64_t features = x_sizes.back();
    const auto weight = [](int64_t out, int64_t in) {
      return torch::randn({out, in}) / std::sqrt(static_cast<double>(in));
    };
    Inputs inputs{{torch::randn(x_sizes), torch::randn({features}), torch::randn({features}),
                   weight(hidden, features), torch::randn({hidden}), weight(features, hidden),
                   torch::randn({features})},
                  std::nullopt};
    if (with_keep) {
      inputs.keep = torch::ones({x_sizes[0]}) * 1.25;
      inputs.keep->index_put_({0}, 0.0);
    }
    return inputs;
  }
  Inputs as(at::ScalarType type) const {
    Inputs copy;
    for (const at::Tensor& tensor : tensors) copy.tensors.push_back(leaf(tensor, type));
    if (keep.has_value()) copy.keep = keep->to(type);
    return copy;
  }
  MlpBranchParameters parameters(Activation activation) const {
    return {tensors[1], tensors[2], tensors[3], tensors[4], tensors[5], tensors[6], activation};
  }
};

using Function = at::Tensor (*)(const at::Tensor&, const MlpBranchParameters&,
                                const OptionalTensor&);

// The output, then the gradients of all inputs.
std::vector<at::Tensor> with_gradients(Function function, const Inputs& inputs, at::ScalarType type,
                                       Activation activation = Activation::kGeluTanh) {
  const Inputs in = inputs.as(type);
  const at::Tensor y = function(in.tensors[0], in.parameters(activation), in.keep);
  torch::manual_seed(6);
  y.backward(torch::randn(y.sizes()).to(type));
  std::vector<at::Tensor> all = {y};
  for (const at::Tensor& tensor : in.tensors) all.push_back(tensor.grad());
  return all;
}

TEST(MlpBranchOp, FusedIsTheCompositeForm) {
  for (const bool with_keep : {false, true})
    for (const Activation activation : {Activation::kNone, Activation::kGeluTanh, Activation::kGelu,
                                        Activation::kRelu, Activation::kSilu})
      for (const std::string& name : supported_implementations()) {
        SCOPED_TRACE(name);
        const ForcedImplementation forced(name);
        const Inputs inputs = Inputs::random({3, 5, 4, 24}, 56, with_keep);
        const auto expected = with_gradients(mlp_branch_composite, inputs, at::kDouble, activation);
        const auto actual = with_gradients(mlp_branch, inputs, at::kFloat, activation);
        EXPECT_EQ(kernels::last_implementation(), name);
        expect_all_near(actual, expected, 1e-5);
      }
}

TEST(MlpBranchOp, OtherDtypesAndAutocast) {
  const Inputs inputs = Inputs::random({2, 3, 3, 16}, 32, true);
  const auto expected = with_gradients(mlp_branch_composite, inputs, at::kDouble);
  expect_all_near(with_gradients(mlp_branch, inputs, at::kDouble), expected, 1e-12);
  // bfloat16 has 8 bits; the norm's gradients are sums of rounded terms.
  expect_all_near(with_gradients(mlp_branch, inputs, at::kBFloat16), expected, 0.1);
  const Autocast autocast(at::kBFloat16);
  const auto lowered = with_gradients(mlp_branch, inputs, at::kFloat);
  EXPECT_FALSE(same(lowered[0], expected[0].to(at::kFloat)));
  expect_all_near(lowered, expected, 0.05);
}

TEST(MlpBranchOp, DoubleBackward) {
  const auto second = [](Function function, const Inputs& inputs, at::ScalarType type) {
    const Inputs in = inputs.as(type);
    const at::Tensor y = function(in.tensors[0], in.parameters(Activation::kGeluTanh), in.keep);
    const auto first = torch::autograd::grad({y.pow(2).sum()}, in.tensors, {}, std::nullopt,
                                             /*create_graph=*/true);
    at::Tensor sum = torch::zeros({}, type);
    for (const at::Tensor& gradient : first) sum = sum + gradient.pow(2).sum();
    return torch::autograd::grad({sum}, in.tensors);
  };
  const Inputs inputs = Inputs::random({2, 6, 12}, 20, true);
  expect_all_near(second(mlp_branch, inputs, at::kFloat),
                  second(mlp_branch_composite, inputs, at::kDouble), 1e-4);
}

TEST(MlpBranchOp, SameBitsForAnyNumberOfThreads) {
  const Inputs inputs = Inputs::random({4, 300, 32}, 128, true);
  const auto one = with_gradients(mlp_branch, inputs, at::kFloat);
  for (const int threads : {2, 3}) {
    const ThreadCount count(threads);
    const auto many = with_gradients(mlp_branch, inputs, at::kFloat);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(same(many[i], one[i])) << i;
  }
}

// Maps that are views of others, and weights that are transposed.
TEST(MlpBranchOp, AnyStrides) {
  const Inputs inputs = Inputs::random({2, 4, 5, 16}, 24, false);
  const auto expected = with_gradients(mlp_branch, inputs, at::kFloat);
  Inputs in = inputs.as(at::kFloat);
  const at::Tensor x = leaf(in.tensors[0].permute({3, 0, 1, 2}), at::kFloat);
  const at::Tensor weight = leaf(in.tensors[3].t().contiguous(), at::kFloat);
  in.tensors[3] = weight.t();
  const at::Tensor y =
      mlp_branch(x.permute({1, 2, 3, 0}), in.parameters(Activation::kGeluTanh), std::nullopt);
  torch::manual_seed(6);
  y.backward(torch::randn(y.sizes()));
  EXPECT_TRUE(same(y, expected[0]));
  EXPECT_TRUE(same(x.grad().permute({1, 2, 3, 0}), expected[1]));
  EXPECT_TRUE(same(weight.grad().t(), expected[4]));
}

TEST(MlpBranchOp, Complaints) {
  const Inputs good = Inputs::random({2, 3, 8}, 12, true);
  const auto run = [&](auto change) {
    return [&good, change] {
      Inputs in = good;
      change(in);
      mlp_branch(in.tensors[0], in.parameters(Activation::kGelu), in.keep);
    };
  };
  expect_complaint(run([](Inputs& in) { in.tensors[0] = torch::zeros({8}); }), {"x", "[8]"});
  expect_complaint(run([](Inputs& in) { in.tensors[1] = torch::zeros({7}); }),
                   {"norm_weight", "[8]", "[7]"});
  expect_complaint(run([](Inputs& in) {
                     in.tensors[5] = torch::zeros({12, 8});
                   }),
                   {"weight2", "[8, 12]", "[12, 8]"});
  expect_complaint(run([](Inputs& in) { in.keep = torch::zeros({3}); }), {"keep", "[2]", "[3]"});
}

}  // namespace
}  // namespace qna::ops::testing
