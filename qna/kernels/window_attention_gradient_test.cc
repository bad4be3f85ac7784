// The reference backward pass in float64 against central differences of the reference forward pass:
// this is what makes the reference one.
#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

using ExactProblem = WindowProblem<double>;

// Pointers to the cells of a map in the plain order [pixels, heads, dim].
std::vector<double*> plain_order(std::vector<double>& cells, const WindowShape& s, int64_t pixels,
                                 const ValueLayout& layout) {
  std::vector<double*> all;
  for (int64_t n = 0; n < pixels; ++n)
    for (int64_t head = 0; head < s.heads; ++head)
      for (int64_t dim = 0; dim < s.head_dim; ++dim) {
        all.push_back(
            &cells[n * layout.pixel_stride + head * layout.head_stride + dim * layout.dim_stride]);
      }
  return all;
}

void check_gradients(ExactProblem p) {
  SCOPED_TRACE(p.text());
  const Results gradients = p.run();
  const std::vector<double*> grad_out = plain_order(p.grad_out, p.shape, p.outputs, p.out_layout);
  // sum of out * grad_out, whose gradient the backward pass computes.
  const auto loss = [&] {
    const Results out = p.forward();
    double sum = 0;
    for (size_t i = 0; i < grad_out.size(); ++i) sum += out.cells()[i] * *grad_out[i];
    return sum;
  };
  // A step large enough that rounding (1e-16 / step) stays below the truncation (step^2), small
  // enough that both are far below the tolerance.
  const auto check = [&](const char* name, const std::vector<double*>& cells) {
    expect_gradient(name, gradients[name], cells, loss, 1e-5, {.by_scale = 2e-9});
  };
  std::vector<double*> scores;
  for (int64_t n = 0; n < p.pixels(); ++n)
    for (int64_t c = 0; c < p.shape.scores(); ++c) {
      scores.push_back(&p.scores[n * p.score_stride + c]);
    }
  check("grad_scores", scores);
  check("grad_values", plain_order(p.values, p.shape, p.pixels(), p.value_layout));
  // An absent table counts as zeros or ones; its gradient is written all the same.
  if (p.bias.empty()) p.bias.assign(p.table(), 0.0);
  if (p.tap_weights.empty()) p.tap_weights.assign(p.table(), 1.0);
  check("grad_bias", pointers(p.bias));
  check("grad_tap_weights", pointers(p.tap_weights));
}

const WindowShape kShapes[] = {
    Map(1, 1, 1).kernel(1, 1),
    Map(1, 3, 4, 2, 2, 2).padded(),
    Map(2, 3, 3, 1, 3, 3).kernel(2, 2).padding(0, 1, 0, 1),
    Map(1, 5, 4, 2, 1, 1).kernel(3, 2).stride(2, 3).padding(2, 0, 1, 0),
    Map(1, 4, 5, 1, 2, 2).padding(2, 1, 2, 2).dilation(2, 2),
    Map(1, 2, 2, 1, 2, 2).kernel(5, 5).padded(),
    Map(1, 1, 3, 2, 2, 2).padding(4, 1, 4, 1),  // windows in the padding
};

TEST(WindowAttentionGradient, ReferenceAgainstFiniteDifferences) {
  for (WindowShape shape : kShapes)
    for (int choice = 0; choice < 16; ++choice) {
      shape.separate = (choice & 1) != 0;
      check_gradients({shape,
                       {.bias = (choice & 2) != 0,
                        .tap_weights = (choice & 4) != 0,
                        .mask = (choice & 8) != 0,
                        .values_heads_fast = choice % 3 == 0,
                        .out_heads_fast = choice % 5 == 0,
                        .gap = choice % 4,
                        .seed = static_cast<uint32_t>(choice + 1)}});
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
