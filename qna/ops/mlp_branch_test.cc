// The MLP branch as an operator: its row of the sweep.
#include "qna/ops/mlp_branch.h"

#include "qna/ops/operator_sweep_testonly.h"

namespace qna::ops::testing {
namespace {

using kernels::Activation;

// A map of one column is a row of tokens: [B, tokens, features].
Arguments random_mlp_branch(const Case& c) {
  const auto [batch, height, width] = c.map;
  const int64_t features = c.widths.in, hidden = c.widths.out;
  Arguments in{{random_map("x", {batch, height, width, features}),
                random_table("norm_weight", {features}), random_table("norm_bias", {features}),
                random_weight("weight1", {hidden, features}, features),
                random_table("bias1", {hidden}),
                random_weight("weight2", {features, hidden}, hidden),
                random_table("bias2", {features}), drop_factor(c)}};
  if (width == 1) in["x"] = in["x"].squeeze(2);
  return in;
}

Function by_mlp(decltype(mlp_branch)* form) {
  return [form](const Arguments& in, const Case& c) {
    return form(in["x"],
                {in["norm_weight"], in["norm_bias"], in["weight1"], in["bias1"], in["weight2"],
                 in["bias2"], c.parts.activation},
                in.optional("drop_factor"));
  };
}

std::vector<Case> mlp_cases() {
  std::vector<Case> cases = {
      Case("small", {2, 3, 3}, {.in = 16, .out = 32}, k3x3, {.drop_factor = true}),
      Case("tokens", {2, 6, 1}, {.in = 12, .out = 20}, k3x3, {.drop_factor = true}),
      Case("no factor", {2, 4, 5}, {.in = 16, .out = 24})};
  const std::pair<const char*, Activation> activations[] = {
      {"none", Activation::kNone},   {"gelu_tanh", Activation::kGeluTanh},
      {"gelu", Activation::kGelu},   {"relu", Activation::kRelu},
      {"relu6", Activation::kRelu6}, {"silu", Activation::kSilu}};
  for (const bool factor : {false, true}) {
    for (const auto& [what, activation] : activations) {
      cases.push_back(Case(what, {3, 5, 4}, {.in = 24, .out = 56}, k3x3,
                           {.drop_factor = factor, .activation = activation}));
    }
  }
  return cases;
}

Operator mlp_branch_operator() {
  return {
      .name = "mlp_branch",
      .cases = mlp_cases(),
      .large = {Case("many tokens", {4, 300, 1}, {.in = 32, .out = 128}, k3x3,
                     {.drop_factor = true})},
      .random = random_mlp_branch,
      .run = by_mlp(mlp_branch),
      .composite = by_mlp(mlp_branch_composite),
      .definition = by_mlp(mlp_branch_composite),
      // Without a kernel for 16 bits every step rounds; the norm's gradients are sums of rounded
      // terms.
      .tolerances = {.output = 1e-5,
                     .gradient = 1e-5,
                     .second = 1e-4,
                     .autocast_output = 0.05,
                     .autocast_gradient = 0.05,
                     .half_output = 25,
                     .half_gradient = 25,
                     .half_inference = 25},
      .type_under_autocast = at::kFloat,  // that of x, which is added
      .types_of_kernels = {at::kFloat},
      .mistaken = Case("", {2, 3, 1}, {.in = 8, .out = 12}, k3x3, {.drop_factor = true}),
      .mistakes = {{"rank of x",
                    [](Arguments& in, Case&) { in["x"] = torch::zeros({8}); },
                    {"x", "[8]"}},
                   {"norm_weight",
                    [](Arguments& in, Case&) { in["norm_weight"] = torch::zeros({7}); },
                    {"norm_weight", "[8]", "[7]"}},
                   {"weight2",
                    [](Arguments& in, Case&) { in["weight2"] = in["weight2"].t(); },
                    {"weight2", "[8, 12]", "[12, 8]"}},
                   {"drop_factor",
                    [](Arguments& in, Case&) { in["drop_factor"] = torch::zeros({3}); },
                    {"drop_factor", "[2]", "[3]"}}},
  };
}

INSTANTIATE_TEST_SUITE_P(MlpBranch, OperatorSweep, ::testing::Values(mlp_branch_operator()));

}  // namespace
}  // namespace qna::ops::testing
