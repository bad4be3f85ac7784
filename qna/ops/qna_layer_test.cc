// The QnA layer as an operator, alone and as the first half of a block: two rows of the sweep, and
// what only the layer has.
#include "qna/ops/qna_layer.h"

#include "qna/ops/composite.h"
#include "qna/ops/operator_sweep_testonly.h"

namespace qna::ops::testing {
namespace {

Arguments random_qna_layer(const Case& c) {
  const auto [in, queries, heads, dim, out] = c.widths;
  const auto [kernel_h, kernel_w] = c.geometry.kernel_size;
  const int64_t table[] = {kernel_h, kernel_w, queries, heads};
  return {{random_map("x", {c.map[0], c.map[1], c.map[2], in}),
           random_weight("score_weight", {in, queries, heads}, in),
           random_weight("value_weight", {in, heads, dim}, in),
           random_table("value_bias", {heads, dim}, c.parts.value_bias),
           random_weight("out_weight", {heads, dim, out}, heads * dim),
           random_table("out_bias", {out}, c.parts.out_bias),
           random_table("bias", table, c.parts.bias),
           random_table("tap_weights", table, c.parts.tap_weights), random_mask(c)}};
}

QnALayerParameters qna_layer_parameters(const Arguments& in) {
  return {in["score_weight"],      in["value_weight"],  in.optional("value_bias"), in["out_weight"],
          in.optional("out_bias"), in.optional("bias"), in.optional("tap_weights")};
}

at::Tensor run_qna_layer(const Arguments& in, const Case& c) {
  return qna_layer(in["x"], qna_layer_parameters(in), in.optional("mask"), c.geometry,
                   c.parts.upsample);
}

at::Tensor run_qna_layer_composite(const Arguments& in, const Case& c) {
  const QnALayerParameters p = qna_layer_parameters(in);
  const OptionalTensor mask = in.optional("mask");
  return qna_layer_composite(in["x"], p.score_weight, p.value_weight, p.value_bias, p.out_weight,
                             p.out_bias, p.bias, p.tap_weights, mask,
                             qna_layer_shape(in["x"], p, mask, c.geometry, c.parts.upsample),
                             c.parts.upsample);
}

// In "all parts": x [2, 6, 7, 5], 3 queries, 3 heads of 2, 7 out.
Operator qna_layer_operator() {
  return {
      .name = "qna::qna_layer",
      .cases = window_cases(),
      .large = large_window_cases(),
      .random = random_qna_layer,
      .run = run_qna_layer,
      .composite = run_qna_layer_composite,
      .definition = run_qna_layer_composite,
      // float32 products of few terms, of order 1; gradients are sums over all pixels that cancel
      // in part. What is kept for the backward pass is rounded to the map's dtype too: two or three
      // roundings instead of one, and a score's counts in its exponential. Autocast rounds the
      // input to 2^-9 on the way in.
      .tolerances = {.output = 1e-5,
                     .gradient = 2e-5,
                     .second = 2e-4,
                     .autocast_output = 0.03,
                     .autocast_gradient = 0.03,
                     .half_output = 2,
                     .half_gradient = 6},
      .bitwise = false,
      .masked = {"x"},
      .mistaken = case_named(window_cases(), "all parts"),
      .mistakes = with_window_mistakes(
          {{"rank of x",
            [](Arguments& in, Case&) { in["x"] = in["x"].flatten(1, 2); },
            {"x must", "4 dimensions", "[2, 42, 5]"}},
           {"integers",
            [](Arguments& in, Case&) { in["x"] = in["x"].to(at::kInt); },
            {"x must", "Int"}},
           {"features of x",
            [](Arguments& in, Case&) { in["x"] = in["x"].narrow(3, 0, 4); },
            {"score_weight", "[4, 3, 3]", "[5, 3, 3]"}},
           {"no features",
            [](Arguments& in, Case&) { in["x"] = in["x"].narrow(3, 0, 0); },
            {"x must", "at least 1 feature", "got 0"}},
           {"rank of score_weight",
            [](Arguments& in, Case&) { in["score_weight"] = in["score_weight"].flatten(1); },
            {"score_weight", "3 dimensions", "[5, 9]"}},
           {"value_weight",
            [](Arguments& in, Case&) { in["value_weight"] = in["value_weight"].narrow(0, 0, 3); },
            {"value_weight", "[5, 3, 2]", "[3, 3, 2]"}},
           {"out_weight",
            [](Arguments& in, Case&) { in["out_weight"] = in["out_weight"].narrow(1, 0, 1); },
            {"out_weight", "[3, 2, 7]", "[3, 1, 7]"}},
           {"value_bias",
            [](Arguments& in, Case&) { in["value_bias"] = in["value_bias"].flatten(); },
            {"value_bias", "[3, 2]", "[6]"}},
           {"out_bias",
            [](Arguments& in, Case&) { in["out_bias"] = in["out_bias"].narrow(0, 0, 6); },
            {"out_bias", "[7]", "[6]"}},
           {"bias",
            [](Arguments& in, Case&) { in["bias"] = in["bias"].narrow(2, 0, 2); },
            {"bias", "[3, 3, 3, 3]", "[3, 3, 2, 3]"}},
           {"tap_weights",
            [](Arguments& in, Case&) { in["tap_weights"] = in["tap_weights"].narrow(0, 0, 2); },
            {"tap_weights", "[3, 3, 3, 3]", "[2, 3, 3, 3]"}},
           {"upsample 0",
            [](Arguments&, Case& c) { c.parts.upsample = 0; },
            {"upsample", "at least 1", "got 0"}},
           {"upsample and queries",
            [](Arguments&, Case& c) { c.parts.upsample = 2; },
            {"2 x 2 queries", "got 3"}},
           {"device",
            [](Arguments& in, Case&) { in["out_weight"] = in["out_weight"].to(at::kMeta); },
            {"out_weight", "device", "cpu", "meta"}}}),
      .last_argument = [](const Case& c) { return c.parts.upsample; },
  };
}

// ---- the layer as a branch ----

std::vector<Case> branch_cases() {
  std::vector<Case> cases;
  for (Case c : window_cases()) {
    // Rows of few features are divided by small numbers, and so are their errors.
    if (c.parts.upsample > 1 || c.widths.in < 4) continue;
    c.parts.drop_factor = c.map[0] > 1;
    cases.push_back(c);
  }
  cases.push_back(
      {"residual", {3, 6, 7}, {10, 2, 4, 3, 10}, k3x3, {.residual = true, .drop_factor = true}});
  return cases;
}

Arguments random_branch(const Case& c) {
  Arguments in = random_qna_layer(c);
  in.list.push_back(drop_factor(c));
  return in;
}

at::Tensor run_branch(const Arguments& in, const Case& c) {
  return qna_layer_branch(
      in["x"], qna_layer_parameters(in), in.optional("mask"), c.geometry,
      {.drop_factor = in.optional("drop_factor"), .residual = c.parts.residual});
}

at::Tensor run_branch_plainly(const Arguments& in, const Case& c) {
  Arguments normed = in;
  const at::Tensor centred = in["x"] - in["x"].mean(-1, true);
  normed["x"] = centred / (centred.pow(2).mean(-1, true) + QnALayerBranch().epsilon).sqrt();
  at::Tensor y = run_qna_layer_composite(normed, c);
  if (in["drop_factor"].defined()) y = y * in["drop_factor"].view({-1, 1, 1, 1});
  return c.parts.residual ? y + in["x"] : y;
}

Operator qna_layer_branch_operator() {
  return {
      .name = "qna_layer_branch",
      .cases = branch_cases(),
      .large = {Case("residual", {3, 30, 31}, {12, 2, 4, 3, 12}, k3x3,
                     {.residual = true, .drop_factor = true})},
      .random = random_branch,
      .run = run_branch,
      .composite = run_branch_plainly,
      .definition = run_branch_plainly,
      // Beside the layer's own errors those of dividing by a deviation.
      .tolerances = {.output = 2e-5,
                     .gradient = 5e-5,
                     .second = 1e-3,
                     .exact = 1e-9,
                     .autocast_output = 0.03,
                     .autocast_gradient = 0.1,
                     .half_output = 8,
                     .half_gradient = 25,
                     .half_inference = 8},
      .bitwise = false,
      .type_under_autocast = std::nullopt,
      .types_of_kernels = {at::kFloat},
      .mistaken = Case("", {2, 6, 7}, {8, 2, 4, 3, 10}, k3x3, {.drop_factor = true}),
      .mistakes = {{"residual of another size",
                    [](Arguments&, Case& c) { c.parts.residual = true; },
                    {"x", "[2, 6, 7, 8]", "6 x 7 x 10"}},
                   {"drop_factor",
                    [](Arguments& in, Case&) { in["drop_factor"] = torch::ones({3}); },
                    {"drop_factor", "[3]"}}},
  };
}

INSTANTIATE_TEST_SUITE_P(QnALayer, OperatorSweep,
                         ::testing::Values(qna_layer_operator(), qna_layer_branch_operator()));
INSTANTIATE_TEST_SUITE_P(QnALayer, RegisteredSweep, ::testing::Values(qna_layer_operator()));

// Scores far apart: the fused ways and the composite must agree on the exact answer.
TEST(QnALayerOp, LargeScores) {
  const Operator op = qna_layer_operator();
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    inputs["score_weight"].mul_(300);
    const Results expected = with_gradients(op.definition, inputs, c, at::kDouble);
    EXPECT_EQ(expected.output.size(3), c.widths.out);
    expect_finite(expected);
    // A score of 1000 is a float32 product: off by 1e-4, and so is its exponential. The gradients
    // of x are multiplied by weights of 300 in turn.
    expect_near(with_gradients(op.run, inputs, c, at::kFloat), expected, 1e-3, 1e-2);
  });
}

}  // namespace
}  // namespace qna::ops::testing
