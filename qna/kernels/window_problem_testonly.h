// Random problems of window attention for the tests, forward and backward.
#pragma once

#include "qna/kernels/sweep_testonly.h"
#include "qna/kernels/window_shapes_testonly.h"

namespace qna::kernels::testing {

// What a problem has besides its shape.
struct WindowOptions {
  bool bias = true;
  bool tap_weights = true;
  bool mask = false;
  bool values_heads_fast = false;  // the two value layouts of ValueLayout
  bool out_heads_fast = false;
  int64_t gap = 0;  // elements between one pixel's channels and the next pixel's
  uint32_t seed = 1;
};

inline ValueLayout make_layout(const WindowShape& s, bool heads_fast, int64_t gap) {
  const int64_t stride = s.features() + gap;
  return heads_fast ? ValueLayout{stride, 1, s.heads} : ValueLayout{stride, s.head_dim, 1};
}

template <typename T>
struct WindowProblem {
  WindowProblem(const WindowShape& shape_in, const WindowOptions& options_in)
      : shape(shape_in), options(options_in) {
    check_shape(shape, "test");
    std::mt19937 random(options.seed);
    outputs = shape.batch * shape.out_height() * shape.out_width() * shape.outputs();
    score_stride = shape.scores() + options.gap;
    value_layout = make_layout(shape, options.values_heads_fast, options.gap);
    out_layout = make_layout(shape, options.out_heads_fast, options.gap);
    scores = random_map<T>(random, pixels(), shape.scores(), score_stride, 2.0f);
    const int64_t features = shape.features();
    values = random_map<T>(random, pixels(), features, value_layout.pixel_stride, 1.0f);
    grad_out = random_map<T>(random, outputs, features, out_layout.pixel_stride, 1.0f);
    if (options.bias) bias = random_cells<Table<T>>(random, table());
    if (options.tap_weights) tap_weights = random_cells<Table<T>>(random, table());
    if (options.mask) mask = random_mask(pixels(), options.seed);
  }

  int64_t pixels() const { return shape.batch * shape.height * shape.width; }
  int64_t table() const { return shape.taps() * shape.scores(); }

  // Index of score (pixel, query, head), and of value (pixel, head, dim).
  int64_t score_index(int64_t pixel, int64_t query, int64_t head) const {
    return pixel * score_stride + query * shape.heads + head;
  }
  int64_t value_index(int64_t pixel, int64_t head, int64_t dim) const {
    return pixel * value_layout.pixel_stride + head * value_layout.head_stride +
           dim * value_layout.dim_stride;
  }

  Results forward(int workers = 1) const {
    GuardedOutput<T> out("out", outputs * out_layout.pixel_stride);
    ThreadRuntime runtime(workers);
    window_attention_forward<T>({.shape = shape,
                                 .scores = scores.data(),
                                 .score_stride = score_stride,
                                 .values = values.data(),
                                 .value_layout = value_layout,
                                 .bias = or_null(bias),
                                 .tap_weights = or_null(tap_weights),
                                 .mask = or_null(mask),
                                 .out = out.data(),
                                 .out_layout = out_layout},
                                runtime);
    return {tolerance,
            {out.take(outputs, shape.heads, shape.head_dim, out_layout)},
            runtime.scratch_bytes()};
  }

  Results backward(int workers = 1) const {
    const WindowShape& s = shape;
    // Other strides than the inputs', to tell them apart.
    const int64_t grad_score_stride = score_stride + (options.gap > 0 ? 2 : 0);
    const ValueLayout grad_value_layout =
        make_layout(s, options.out_heads_fast, options.gap > 0 ? options.gap + 3 : 0);
    GuardedOutput<T> grad_scores("grad_scores", pixels() * grad_score_stride);
    GuardedOutput<T> grad_values("grad_values", pixels() * grad_value_layout.pixel_stride);
    GuardedOutput<Table<T>> grad_bias("grad_bias", table());
    GuardedOutput<Table<T>> grad_tap_weights("grad_tap_weights", table());
    ThreadRuntime runtime(workers);
    window_attention_backward<T>({.shape = s,
                                  .grad_out = grad_out.data(),
                                  .out_layout = out_layout,
                                  .scores = scores.data(),
                                  .score_stride = score_stride,
                                  .values = values.data(),
                                  .value_layout = value_layout,
                                  .bias = or_null(bias),
                                  .tap_weights = or_null(tap_weights),
                                  .mask = or_null(mask),
                                  .grad_scores = grad_scores.data(),
                                  .grad_score_stride = grad_score_stride,
                                  .grad_values = grad_values.data(),
                                  .grad_value_layout = grad_value_layout,
                                  .grad_bias = grad_bias.data(),
                                  .grad_tap_weights = grad_tap_weights.data()},
                                 runtime);
    return {tolerance,
            {grad_scores.take(pixels(), 1, s.scores(), {grad_score_stride, 0, 1}),
             grad_values.take(pixels(), s.heads, s.head_dim, grad_value_layout), grad_bias.take(),
             grad_tap_weights.take()},
            runtime.scratch_bytes()};
  }

  Results run(int workers = 1) const {
    Results all = forward(workers);
    Results gradients = backward(workers);
    for (Part& part : gradients.parts) all.parts.push_back(std::move(part));
    all.scratch_bytes = std::max(all.scratch_bytes, gradients.scratch_bytes);
    return all;
  }

  // The arithmetic of 16-bit maps is float32: a result is that of the same, rounded inputs, rounded
  // once. The tables are float32 and not rounded at all.
  bool is_plain() const { return std::is_same_v<T, float>; }
  WindowProblem<float> plain() const {
    WindowProblem<float> wide(shape, options);
    wide.scores = widen(scores);
    wide.values = widen(values);
    wide.grad_out = widen(grad_out);
    wide.bias = bias;
    wide.tap_weights = tap_weights;
    wide.mask = mask;
    return wide;
  }

  void poison(int64_t n, float value) {
    std::fill_n(scores.begin() + n * score_stride, shape.scores(), from_float<T>(value));
    std::fill_n(values.begin() + n * value_layout.pixel_stride, shape.features(),
                from_float<T>(value));
  }

  std::string text() const {
    return fmt::format(
        "{} {} bias {}, tap weights {}, mask {}, heads fast in {} out {}, gap {}, seed {}",
        dtype_name<T>(), testing::text(shape), options.bias, options.tap_weights, options.mask,
        options.values_heads_fast, options.out_heads_fast, options.gap, options.seed);
  }

  WindowShape shape;
  WindowOptions options;
  int64_t outputs;
  int64_t score_stride;
  ValueLayout value_layout, out_layout;
  std::vector<T> scores, values, grad_out;
  std::vector<Table<T>> bias, tap_weights;  // empty: none
  std::vector<uint8_t> mask;                // empty: none
  // float32 rounds at 6e-8; a gradient is a sum of up to some thousand terms of order 1, half of
  // which cancel. The observed errors are below 3e-6 of the largest element.
  Tolerance tolerance = {.by_scale = 2e-5};
};

inline WindowOptions random_window_options(RandomShapes& random) {
  return {.bias = random.coin(),
          .tap_weights = random.coin(),
          .mask = random.coin(),
          .values_heads_fast = random.coin(),
          .out_heads_fast = random.coin(),
          .gap = random.coin() ? 0 : random.between(1, 9),
          .seed = static_cast<uint32_t>(random.random())};
}

}  // namespace qna::kernels::testing
