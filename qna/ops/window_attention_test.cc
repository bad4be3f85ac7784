// Window attention as an operator: its row of the sweep, and what only it has.
#include "qna/ops/window_attention.h"

#include "qna/ops/composite.h"
#include "qna/ops/operator_sweep_testonly.h"

namespace qna::ops::testing {
namespace {

bool is_separate(const Case& c) { return c.parts.separate || c.parts.upsample > 1; }

Arguments random_window_attention(const Case& c) {
  const auto [batch, height, width] = c.map;
  const auto [in, queries, heads, dim, out] = c.widths;
  const auto [kernel_h, kernel_w] = c.geometry.kernel_size;
  const int64_t table[] = {kernel_h, kernel_w, queries, heads};
  return {{random_map("scores", {batch, height, width, queries, heads}, 2),
           random_map("values", {batch, height, width, heads, dim}),
           random_table("bias", table, c.parts.bias),
           random_table("tap_weights", table, c.parts.tap_weights), random_mask(c)}};
}

at::Tensor run_window_attention(const Arguments& in, const Case& c) {
  return window_attention(in["scores"], in["values"], in.optional("bias"),
                          in.optional("tap_weights"), in.optional("mask"), c.geometry,
                          is_separate(c));
}

// By one of the two forms in ops/composite.h.
Function by_composite(decltype(window_attention_composite)* form) {
  return [form](const Arguments& in, const Case& c) {
    const OptionalTensor bias = in.optional("bias"), tap_weights = in.optional("tap_weights"),
                         mask = in.optional("mask");
    return form(in["scores"], in["values"], bias, tap_weights, mask,
                window_attention_shape(in["scores"], in["values"], bias, tap_weights, mask,
                                       c.geometry, is_separate(c)));
  };
}

Operator window_attention_operator() {
  return {
      .name = "qna::window_attention",
      .cases = window_cases(),
      .large = large_window_cases(),
      .random = random_window_attention,
      .run = run_window_attention,
      .composite = by_composite(window_attention_composite),
      .definition = by_composite(window_attention_gather),
      // As those of sasa_test.cc, for the same reasons.
      .tolerances = {.output = 2e-5,
                     .gradient = 2e-5,
                     .second = 2e-4,
                     .autocast_output = 0.04,
                     .autocast_gradient = 0.04},
      .masked = {"scores", "values"},
      .mistaken = case_named(window_cases(), "masked"),
      .mistakes = with_window_mistakes(
          {{"rank of scores",
            [](Arguments& in, Case&) { in["scores"] = in["scores"].flatten(3); },
            {"scores", "5 dimensions", "[2, 6, 7, 6]"}},
           {"rank of values",
            [](Arguments& in, Case&) { in["values"] = in["values"].flatten(0, 1); },
            {"values", "5 dimensions", "4"}},
           {"dtype mismatch",
            [](Arguments& in, Case&) { in["scores"] = in["scores"].to(at::kDouble); },
            {"scores", "dtype of values", "Float", "Double"}},
           {"integers",
            [](Arguments& in, Case&) {
              for (const char* name : {"scores", "values"}) in[name] = in[name].to(at::kLong);
            },
            {"values", "float32", "Long"}},
           {"complex",
            [](Arguments& in, Case&) {
              for (const char* name : {"scores", "values"})
                in[name] = in[name].to(at::kComplexFloat);
            },
            {"values", "ComplexFloat"}},
           {"heads",
            [](Arguments& in, Case&) { in["scores"] = in["scores"].narrow(4, 0, 2); },
            {"scores", "[2, 6, 7, 2, 3]", "[2, 6, 7, 2, 2]"}},
           {"width",
            [](Arguments& in, Case&) { in["values"] = in["values"].narrow(2, 0, 6); },
            {"scores", "[2, 6, 6, 2, 3]", "[2, 6, 7, 2, 3]"}},
           {"bias",
            [](Arguments& in, Case&) { in["bias"] = in["bias"].narrow(0, 0, 2); },
            {"bias", "[3, 3, 2, 3]", "[2, 3, 2, 3]"}},
           {"tap weights",
            [](Arguments& in, Case&) { in["tap_weights"] = in["tap_weights"].unsqueeze(0); },
            {"tap_weights", "[3, 3, 2, 3]", "[1, 3, 3, 2, 3]"}}}),
      .last_argument = is_separate,
  };
}

INSTANTIATE_TEST_SUITE_P(WindowAttention, OperatorSweep,
                         ::testing::Values(window_attention_operator()));
INSTANTIATE_TEST_SUITE_P(WindowAttention, RegisteredSweep,
                         ::testing::Values(window_attention_operator()));

// The composite shifts by the map's maximum; windows far below it must be found and done exactly.
TEST(WindowAttentionOp, CompositeIsStable) {
  const Operator op = window_attention_operator();
  for (const double apart : {50.0, 200.0, 1e4, 1e30})
    each_case(op, [&](const Case& c, const Arguments& inputs) {
      if (c.map[0] == 0) return;
      SCOPED_TRACE(apart);
      const at::Tensor scores = inputs["scores"];
      scores.narrow(2, 0, (c.map[2] + 1) / 2).sub_(apart);
      scores.narrow(1, 0, (c.map[1] + 1) / 2).sub_(apart / 2);
      // In float64: the truth. In float32 the scores themselves are coarser.
      const Results expected = with_gradients(op.definition, inputs, c, at::kDouble);
      expect_finite(expected);
      expect_near(with_gradients(op.composite, inputs, c, at::kDouble), expected, 1e-10);
      const Arguments coarse = inputs.as(at::kFloat, false).as(at::kDouble, false);
      const Results coarse_expected = with_gradients(op.definition, coarse, c, at::kDouble);
      for (const Function& way : {op.composite, op.run}) {
        expect_near(with_gradients(way, coarse, c, at::kFloat), coarse_expected,
                    op.tolerances.output);
      }
    });
}

// A score of -inf takes its tap out for that query and head; a window without taps gives 0.
TEST(WindowAttentionOp, ScoresOfMinusInfinity) {
  const Operator op = window_attention_operator();
  each_case(op, {op.cases[0]}, [&](const Case& c, const Arguments& inputs) {
    const double infinity = std::numeric_limits<double>::infinity();
    const at::Tensor scores = inputs["scores"];
    scores.masked_fill_(random_like(scores, 3) > 0.5, -infinity);
    scores.select(3, 0).fill_(-infinity);  // all of a query
    const Results expected = with_gradients(op.definition, inputs, c, at::kDouble);
    expect_finite(expected);
    expect_near(with_gradients(op.composite, inputs, c, at::kDouble), expected,
                op.tolerances.exact);
    expect_near(with_gradients(op.run, inputs, c, at::kFloat), expected, op.tolerances.output);
  });
}

}  // namespace
}  // namespace qna::ops::testing
