// The reference backward pass in float64 against central differences of the reference forward pass:
// this is what makes the reference one.
#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

using Problem = WindowProblem<double>;

// Large enough that rounding (1e-16 / step) stays below the truncation (step^2), small enough that
// both are far below the tolerance.
constexpr double kStep = 1e-5;
constexpr double kTolerance = 2e-9;

// sum of out * grad_out, whose gradient the backward pass computes.
double loss(const Problem& p) {
  WindowResult result;
  run_forward(p, &window_attention_forward_reference<double>, result);
  double sum = 0;
  size_t i = 0;
  for (int64_t n = 0; n < p.outputs; ++n)
    for (int64_t head = 0; head < p.shape.heads; ++head)
      for (int64_t dim = 0; dim < p.shape.head_dim; ++dim) {
        sum += result.out[i++] *
               p.grad_out[n * p.out_layout.pixel_stride + head * p.out_layout.head_stride +
                          dim * p.out_layout.dim_stride];
      }
  return sum;
}

double difference(Problem& p, double& cell) {
  const double before = cell;
  cell = before + kStep;
  const double above = loss(p);
  cell = before - kStep;
  const double below = loss(p);
  cell = before;
  return (above - below) / (2 * kStep);
}

void check_gradients(const WindowShape& shape, const ProblemOptions& options) {
  SCOPED_TRACE(text(shape) + " " + text(options));
  Problem p(shape, options);
  const WindowResult actual = run_reference(p);
  WindowResult numeric;
  const int64_t pixels = shape.batch * shape.height * shape.width;
  for (int64_t n = 0; n < pixels; ++n) {
    for (int64_t l = 0; l < shape.queries; ++l)
      for (int64_t head = 0; head < shape.heads; ++head) {
        numeric.grad_scores.push_back(difference(p, p.scores[p.score_index(n, l, head)]));
      }
    for (int64_t head = 0; head < shape.heads; ++head)
      for (int64_t dim = 0; dim < shape.head_dim; ++dim) {
        numeric.grad_values.push_back(difference(p, p.values[p.value_index(n, head, dim)]));
      }
  }
  // An absent table counts as zeros or ones; its gradient is written all the same.
  if (p.bias.empty()) p.bias.assign(shape.taps() * shape.scores(), 0.0);
  if (p.tap_weights.empty()) p.tap_weights.assign(shape.taps() * shape.scores(), 1.0);
  for (double& cell : p.bias) numeric.grad_bias.push_back(difference(p, cell));
  for (double& cell : p.tap_weights) numeric.grad_tap_weights.push_back(difference(p, cell));
  numeric.out = actual.out;
  expect_near(actual, numeric, kTolerance);
}

const WindowShape kShapes[] = {
    {.kernel_h = 1, .kernel_w = 1},
    {.height = 3,
     .width = 4,
     .heads = 2,
     .head_dim = 2,
     .queries = 2,
     .pad_top = 1,
     .pad_bottom = 1,
     .pad_left = 1,
     .pad_right = 1},
    {.batch = 2,
     .height = 3,
     .width = 3,
     .heads = 1,
     .head_dim = 3,
     .queries = 3,
     .kernel_h = 2,
     .kernel_w = 2,
     .pad_bottom = 1,
     .pad_right = 1},
    {.height = 5,
     .width = 4,
     .heads = 2,
     .head_dim = 1,
     .queries = 1,
     .kernel_h = 3,
     .kernel_w = 2,
     .stride_h = 2,
     .stride_w = 3,
     .pad_top = 2,
     .pad_left = 1},
    {.height = 4,
     .width = 5,
     .heads = 1,
     .head_dim = 2,
     .queries = 2,
     .pad_top = 2,
     .pad_bottom = 1,
     .pad_left = 2,
     .pad_right = 2,
     .dilation_h = 2,
     .dilation_w = 2},
    {.height = 2,
     .width = 2,
     .heads = 1,
     .head_dim = 2,
     .queries = 2,
     .kernel_h = 5,
     .kernel_w = 5,
     .pad_top = 2,
     .pad_bottom = 2,
     .pad_left = 2,
     .pad_right = 2},
    {.height = 1,
     .width = 3,
     .heads = 2,
     .head_dim = 2,
     .queries = 2,
     .pad_top = 4,
     .pad_bottom = 1,
     .pad_left = 4,
     .pad_right = 1},  // windows in the padding
};

TEST(WindowAttentionGradient, ReferenceAgainstFiniteDifferences) {
  for (WindowShape shape : kShapes)
    for (int choice = 0; choice < 16; ++choice) {
      shape.separate = (choice & 1) != 0;
      check_gradients(shape, {.bias = (choice & 2) != 0,
                              .tap_weights = (choice & 4) != 0,
                              .mask = (choice & 8) != 0,
                              .values_heads_fast = choice % 3 == 0,
                              .out_heads_fast = choice % 5 == 0,
                              .gap = choice % 4,
                              .seed = static_cast<uint32_t>(choice + 1)});
      if (HasFailure()) return;
    }
}

// The words of the header, once by hand: two taps, weights in the ratio exp(score + bias).
TEST(WindowAttentionGradient, ReferenceByHand) {
  const WindowShape shape{.width = 2, .queries = 2, .kernel_h = 1, .kernel_w = 2};
  const double scores[] = {0.5, -1.0, 2.0, 0.25};  // [2 pixels, 2 queries]
  const double values[] = {3.0, -5.0};
  const double bias[] = {0.1, 0.0, -0.2, 0.3};         // [2 taps, 2 queries]
  const double tap_weights[] = {0.7, -0.4, 1.5, 2.0};  // [2 taps, 2 queries]
  const auto first = [&](int l) {
    return 1 / (1 + std::exp(scores[2 + l] + bias[2 + l] - scores[l] - bias[l]));
  };
  double z[2];
  for (int l = 0; l < 2; ++l) {
    z[l] = tap_weights[l] * first(l) * values[0] + tap_weights[2 + l] * (1 - first(l)) * values[1];
  }
  double out[2] = {};
  WindowAttentionArgs<double> args{.shape = shape,
                                   .scores = scores,
                                   .score_stride = 2,
                                   .values = values,
                                   .value_layout = {1, 1, 1},
                                   .bias = bias,
                                   .tap_weights = tap_weights,
                                   .mask = nullptr,
                                   .out = out,
                                   .out_layout = {1, 1, 1}};
  ThreadRuntime runtime;
  window_attention_forward<double>(args, runtime);
  EXPECT_NEAR(out[0], z[0] + z[1], 1e-14);
  args.shape.separate = true;
  window_attention_forward<double>(args, runtime);
  EXPECT_NEAR(out[0], z[0], 1e-14);
  EXPECT_NEAR(out[1], z[1], 1e-14);
  // Without the second pixel only the first tap is left.
  const uint8_t mask[] = {1, 0};
  args.mask = mask;
  window_attention_forward<double>(args, runtime);
  EXPECT_NEAR(out[0], 0.7 * 3.0, 1e-14);
  EXPECT_NEAR(out[1], -0.4 * 3.0, 1e-14);
}

}  // namespace
}  // namespace qna::kernels::testing
