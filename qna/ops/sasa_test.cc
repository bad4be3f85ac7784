// Stand-alone self-attention as an operator: its row of the sweep, and what only it has.
#include "qna/ops/sasa.h"

#include "qna/ops/operator_sweep_testonly.h"

namespace qna::ops::testing {
namespace {

Arguments random_sasa(const Case& c) {
  const auto [batch, height, width] = c.map;
  const int64_t heads = c.widths.heads, dim = c.widths.dim;
  const kernels::WindowShape shape =
      make_shape(batch, height, width, 1, heads, dim, c.geometry, false, "test");
  return {{random_map("q", {batch, shape.out_height(), shape.out_width(), heads, dim}),
           random_map("k", {batch, height, width, heads, dim}),
           random_map("v", {batch, height, width, heads, dim}),
           random_table("bias", {shape.kernel_h, shape.kernel_w, heads}, c.parts.bias),
           random_mask(c)}};
}

at::Tensor run_sasa(const Arguments& in, const Case& c) {
  return sasa(in["q"], in["k"], in["v"], in.optional("bias"), in.optional("mask"), c.geometry);
}

// One window at a time, from the definition in ops/sasa.h. Differentiable.
at::Tensor define_sasa(const Arguments& in, const Case& c) {
  const WindowGeometry& g = c.geometry;
  const at::Tensor &q = in["q"], &mask = in["mask"];
  const OptionalTensor bias = in.optional("bias");
  const int64_t height = in["k"].size(1), width = in["k"].size(2);
  std::vector<at::Tensor> windows;
  for (int64_t b = 0; b < q.size(0); ++b)
    for (int64_t i = 0; i < q.size(1); ++i)
      for (int64_t j = 0; j < q.size(2); ++j) {
        std::vector<int64_t> taps, pixels;
        for (int64_t tap = 0; tap < g.kernel_size[0] * g.kernel_size[1]; ++tap) {
          const int64_t y = i * g.stride[0] - g.padding[0] + tap / g.kernel_size[1] * g.dilation[0];
          const int64_t x = j * g.stride[1] - g.padding[2] + tap % g.kernel_size[1] * g.dilation[1];
          if (y < 0 || y >= height || x < 0 || x >= width) continue;
          if (mask.defined() && !mask[b][y][x].item<bool>()) continue;
          taps.push_back(tap);
          pixels.push_back(y * width + x);
        }
        const auto seen = [&](const at::Tensor& map) {
          return map[b].flatten(0, 1).index_select(0, torch::tensor(pixels, at::kLong));
        };
        OptionalTensor seen_bias;
        if (bias) seen_bias = bias->flatten(0, 1).index_select(0, torch::tensor(taps, at::kLong));
        windows.push_back(attend(q[b][i][j], seen(in["k"]), seen(in["v"]), seen_bias));
      }
  if (!windows.empty()) return torch::stack(windows).view(q.sizes());
  at::Tensor nothing = torch::zeros_like(q);  // of everything, which then has gradients
  for (const at::Tensor& tensor : in.given()) nothing = nothing + tensor.sum();
  return nothing;
}

Operator sasa_operator() {
  return {
      .name = "qna::sasa",
      .cases = window_cases(),
      .large = large_window_cases(),
      .random = random_sasa,
      .run = run_sasa,
      .composite =
          [](const Arguments& in, const Case& c) {
            return sasa_composite(in["q"], in["k"], in["v"], in.optional("bias"),
                                  in.optional("mask"), c.geometry);
          },
      .definition = define_sasa,
      // float32 sums of some hundred terms of order 1; half of them cancel in a gradient. Under
      // autocast, scores of size 6 are off by 1/80, and so are their exponentials.
      .tolerances = {.output = 2e-5,
                     .gradient = 2e-5,
                     .second = 2e-4,
                     .autocast_output = 0.04,
                     .autocast_gradient = 0.04},
      .masked = {"k", "v"},
      .mistaken = case_named(window_cases(), "masked"),
      .mistakes = with_window_mistakes(
          {{"rank of q",
            [](Arguments& in, Case&) { in["q"] = in["q"].flatten(3); },
            {"q must", "5 dimensions", "[2, 6, 7, 6]"}},
           {"rank of k",
            [](Arguments& in, Case&) { in["k"] = in["k"].flatten(0, 1); },
            {"k must", "5 dimensions", "[12, 7, 3, 2]"}},
           {"dtype of k",
            [](Arguments& in, Case&) { in["k"] = in["k"].to(at::kDouble); },
            {"k must", "dtype of q", "Float", "Double"}},
           {"integers",
            [](Arguments& in, Case&) {
              for (const char* name : {"q", "k", "v"}) in[name] = in[name].to(at::kLong);
            },
            {"q must", "float32", "Long"}},
           {"size of v",
            [](Arguments& in, Case&) { in["v"] = in["v"].narrow(2, 0, 6); },
            {"v must", "[2, 6, 7, 3, 2]", "[2, 6, 6, 3, 2]"}},
           {"size of q",
            [](Arguments& in, Case&) { in["q"] = in["q"].narrow(1, 0, 5); },
            {"q must", "[2, 6, 7, 3, 2]", "[2, 5, 7, 3, 2]"}},
           {"q of another window",
            [](Arguments&, Case& c) { c.geometry.padding.fill(0); },
            {"q must", "[2, 4, 5, 3, 2]", "[2, 6, 7, 3, 2]"}},
           {"bias",
            [](Arguments& in, Case&) { in["bias"] = in["bias"].narrow(0, 0, 2); },
            {"bias", "[3, 3, 3]", "[2, 3, 3]"}}}),
  };
}

INSTANTIATE_TEST_SUITE_P(Sasa, OperatorSweep, ::testing::Values(sasa_operator()));
INSTANTIATE_TEST_SUITE_P(Sasa, RegisteredSweep, ::testing::Values(sasa_operator()));

// Scores of +-1e4 and more: in float64 the truth; float32 rounds them at 2^-23 of their size.
TEST(SasaOp, LargeScores) {
  const Operator op = sasa_operator();
  for (const double scale : {1e2, 1e4})
    each_case(op, [&](const Case& c, const Arguments& inputs) {
      SCOPED_TRACE(scale);
      inputs["q"].mul_(scale);
      const Results expected = with_gradients(op.definition, inputs, c, at::kDouble);
      expect_near(with_gradients(op.composite, inputs, c, at::kDouble), expected, 1e-10);
      const double rounding = 32 * scale * 0x1p-23;
      expect_near(with_gradients(op.composite, inputs, c, at::kFloat), expected, rounding);
      expect_near(with_gradients(op.run, inputs, c, at::kFloat), expected, rounding);
    });
}

// A bias of -inf takes its tap out for that head; a head without taps gives 0.
TEST(SasaOp, BiasOfMinusInfinity) {
  const Operator op = sasa_operator();
  each_case(op, {op.cases[0]}, [&](const Case& c, const Arguments& inputs) {
    const double infinity = std::numeric_limits<double>::infinity();
    inputs["bias"].select(2, 0).fill_(-infinity);
    inputs["bias"].select(2, 1).select(0, 1).fill_(-infinity);
    const Results expected = with_gradients(op.composite, inputs, c, at::kDouble);
    expect_finite(expected);
    EXPECT_EQ(expected.output.select(3, 0).abs().max().item<double>(), 0);
    for (const char* name : {"", "reference"}) {
      const ForcedImplementation forced(name);
      expect_near(with_gradients(op.run, inputs, c, at::kFloat), expected, op.tolerances.output);
    }
  });
}

// Heads-fast maps go in and come out as they are.
TEST(SasaOp, KeepsTheOrderOfChannels) {
  const Operator op = sasa_operator();
  each_case(op, {op.cases[0]}, [&](const Case& c, const Arguments& inputs) {
    Arguments in = inputs.as(at::kFloat, false);
    EXPECT_TRUE(op.run(in, c).is_contiguous());
    in["q"] = in["q"].transpose(3, 4).contiguous().transpose(3, 4);
    EXPECT_TRUE(op.run(in, c).transpose(3, 4).is_contiguous());
  });
}

}  // namespace
}  // namespace qna::ops::testing
