// Random window-attention problems for the tests: inputs without one element to spare, outputs
// between guards, and a comparison that says where two results differ.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "qna/base/error.h"
#include "qna/kernels/implementation.h"

namespace qna::kernels::testing {

// An output buffer. All of it, guards and gaps between pixels too, holds a canary; collect() takes
// results out and leaves canaries, so that intact() afterwards speaks for all that is left.
template <typename T>
class GuardedOutput {
 public:
  explicit GuardedOutput(int64_t count) : cells_(count + 2 * kGuard, canary()) {}

  // An odd guard: no vector's alignment.
  T* data() { return cells_.data() + kGuard; }
  int64_t size() const { return static_cast<int64_t>(cells_.size()) - 2 * kGuard; }

  double collect(int64_t index) {
    T& cell = cells_[kGuard + index];
    const double value = to_float(cell);
    cell = canary();
    return value;
  }

  bool intact() const {
    return std::all_of(cells_.begin(), cells_.end(),
                       [](const T& cell) { return to_float(cell) == to_float(canary()); });
  }

 private:
  static constexpr int64_t kGuard = 67;
  // No result comes near: a cell that was never written is a wrong result too.
  static T canary() { return from_float<T>(-31337.0f); }
  std::vector<T> cells_;
};

// What a problem has besides its shape.
struct ProblemOptions {
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
  WindowProblem(const WindowShape& shape_in, const ProblemOptions& options_in)
      : shape(shape_in), options(options_in), random(options_in.seed) {
    check_shape(shape, "test");
    const int64_t pixels = shape.batch * shape.height * shape.width;
    outputs = shape.batch * shape.out_height() * shape.out_width() * shape.outputs();
    score_stride = shape.scores() + options.gap;
    value_layout = make_layout(shape, options.values_heads_fast, options.gap);
    out_layout = make_layout(shape, options.out_heads_fast, options.gap);
    scores = map(pixels, shape.scores(), score_stride, 2.0f);
    values = map(pixels, shape.features(), value_layout.pixel_stride, 1.0f);
    grad_out = map(outputs, shape.features(), out_layout.pixel_stride, 1.0f);
    if (options.bias) bias = table(1.0f);
    if (options.tap_weights) tap_weights = table(1.0f);
    if (options.mask) {
      for (int64_t n = 0; n < pixels; ++n) mask.push_back(random() % 4 != 0);
    }
  }

  // Channels next to each other, pixels `stride` apart, NaN in between; ends with the last channel,
  // so that a sanitizer sees any read past it.
  std::vector<T> map(int64_t pixels, int64_t channels, int64_t stride, float scale) {
    if (pixels == 0) return {};
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<T> cells((pixels - 1) * stride + channels,
                         from_float<T>(std::numeric_limits<float>::quiet_NaN()));
    for (int64_t n = 0; n < pixels; ++n)
      for (int64_t c = 0; c < channels; ++c) {
        cells[n * stride + c] = from_float<T>(normal(random));
      }
    return cells;
  }

  std::vector<Table<T>> table(float scale) {
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<Table<T>> cells(shape.taps() * shape.scores());
    for (Table<T>& cell : cells) cell = normal(random);
    return cells;
  }

  // Index of score (pixel, query, head), and of value (pixel, head, dim).
  int64_t score_index(int64_t pixel, int64_t query, int64_t head) const {
    return pixel * score_stride + query * shape.heads + head;
  }
  int64_t value_index(int64_t pixel, int64_t head, int64_t dim) const {
    return pixel * value_layout.pixel_stride + head * value_layout.head_stride +
           dim * value_layout.dim_stride;
  }

  WindowShape shape;
  ProblemOptions options;
  std::mt19937 random;
  int64_t outputs;
  int64_t score_stride;
  ValueLayout value_layout, out_layout;
  std::vector<T> scores, values, grad_out;
  std::vector<Table<T>> bias, tap_weights;  // empty: none
  std::vector<uint8_t> mask;                // empty: none
};

// A kernel's results in the plain order [.., heads, dim], whatever layout it wrote.
struct WindowResult {
  std::vector<double> out, grad_scores, grad_values, grad_bias, grad_tap_weights;
};

template <typename T>
std::vector<double> collect_values(GuardedOutput<T>& cells, const WindowShape& s, int64_t pixels,
                                   const ValueLayout& layout) {
  std::vector<double> plain;
  plain.reserve(pixels * s.features());
  for (int64_t n = 0; n < pixels; ++n)
    for (int64_t head = 0; head < s.heads; ++head)
      for (int64_t dim = 0; dim < s.head_dim; ++dim) {
        plain.push_back(cells.collect(n * layout.pixel_stride + head * layout.head_stride +
                                      dim * layout.dim_stride));
      }
  return plain;
}

template <typename T>
std::vector<double> collect_rows(GuardedOutput<T>& cells, int64_t rows, int64_t columns,
                                 int64_t stride) {
  std::vector<double> plain;
  plain.reserve(rows * columns);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) plain.push_back(cells.collect(r * stride + c));
  return plain;
}

// What call(out) writes into the `count` cells at `out`, and nowhere else.
template <typename T, typename Call>
std::vector<double> collect_guarded(int64_t count, const Call& call) {
  GuardedOutput<T> out(count);
  call(out.data());
  std::vector<double> result = collect_rows(out, 1, count, count);
  EXPECT_TRUE(out.intact()) << "written outside the output";
  return result;
}

inline std::vector<float> normal_floats(int64_t count, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0.0f, scale);
  std::vector<float> cells(count);
  for (float& cell : cells) cell = distribution(random);
  return cells;
}

template <typename T>
const T* or_null(const std::vector<T>& cells) {
  return cells.empty() ? nullptr : cells.data();
}

template <typename T, typename Kernel>
void run_forward(const WindowProblem<T>& p, Kernel kernel, WindowResult& result, int workers = 1) {
  GuardedOutput<T> out(p.outputs * p.out_layout.pixel_stride);
  ThreadRuntime runtime(workers);
  kernel(WindowAttentionArgs<T>{.shape = p.shape,
                                .scores = p.scores.data(),
                                .score_stride = p.score_stride,
                                .values = p.values.data(),
                                .value_layout = p.value_layout,
                                .bias = or_null(p.bias),
                                .tap_weights = or_null(p.tap_weights),
                                .mask = or_null(p.mask),
                                .out = out.data(),
                                .out_layout = p.out_layout},
         runtime);
  result.out = collect_values(out, p.shape, p.outputs, p.out_layout);
  EXPECT_TRUE(out.intact()) << "forward wrote outside its output";
}

template <typename T, typename Kernel>
void run_backward(const WindowProblem<T>& p, Kernel kernel, WindowResult& result, int workers = 1) {
  const WindowShape& s = p.shape;
  const int64_t pixels = s.batch * s.height * s.width;
  const int64_t table = s.taps() * s.scores();
  // Other strides than the inputs', to tell them apart.
  const int64_t grad_score_stride = p.score_stride + (p.options.gap > 0 ? 2 : 0);
  const ValueLayout grad_value_layout =
      make_layout(s, p.options.out_heads_fast, p.options.gap > 0 ? p.options.gap + 3 : 0);
  GuardedOutput<T> grad_scores(pixels * grad_score_stride);
  GuardedOutput<T> grad_values(pixels * grad_value_layout.pixel_stride);
  GuardedOutput<Table<T>> grad_bias(table);
  GuardedOutput<Table<T>> grad_tap_weights(table);
  ThreadRuntime runtime(workers);
  kernel(WindowAttentionBackwardArgs<T>{.shape = s,
                                        .grad_out = p.grad_out.data(),
                                        .out_layout = p.out_layout,
                                        .scores = p.scores.data(),
                                        .score_stride = p.score_stride,
                                        .values = p.values.data(),
                                        .value_layout = p.value_layout,
                                        .bias = or_null(p.bias),
                                        .tap_weights = or_null(p.tap_weights),
                                        .mask = or_null(p.mask),
                                        .grad_scores = grad_scores.data(),
                                        .grad_score_stride = grad_score_stride,
                                        .grad_values = grad_values.data(),
                                        .grad_value_layout = grad_value_layout,
                                        .grad_bias = grad_bias.data(),
                                        .grad_tap_weights = grad_tap_weights.data()},
         runtime);
  result.grad_scores = collect_rows(grad_scores, pixels, s.scores(), grad_score_stride);
  result.grad_values = collect_values(grad_values, s, pixels, grad_value_layout);
  result.grad_bias = collect_rows(grad_bias, 1, table, table);
  result.grad_tap_weights = collect_rows(grad_tap_weights, 1, table, table);
  EXPECT_TRUE(grad_scores.intact() && grad_values.intact() && grad_bias.intact() &&
              grad_tap_weights.intact())
      << "backward wrote outside its outputs";
}

template <typename T>
WindowResult run_reference(const WindowProblem<T>& p) {
  WindowResult result;
  run_forward(p, &window_attention_forward_reference<T>, result);
  run_backward(p, &window_attention_backward_reference<T>, result);
  return result;
}

template <typename T>
const KernelTable<T>& kernels_of(const Implementation& implementation) {
  if constexpr (std::is_same_v<T, float>) return implementation.float32;
  if constexpr (std::is_same_v<T, BFloat16>) return implementation.bfloat16;
  if constexpr (std::is_same_v<T, Float16>) return implementation.float16;
}

template <typename T>
WindowResult run_implementation(const Implementation& implementation, const WindowProblem<T>& p,
                                int workers = 1) {
  WindowResult result;
  run_forward(p, kernels_of<T>(implementation).forward, result, workers);
  run_backward(p, kernels_of<T>(implementation).backward, result, workers);
  return result;
}

// All that this CPU can run, but for the reference.
inline std::vector<const Implementation*> simd_implementations() {
  std::vector<const Implementation*> list;
  for (const Implementation& implementation : implementations()) {
    if (implementation.supported && implementation.name != std::string("reference")) {
      list.push_back(&implementation);
    }
  }
  return list;
}

inline double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  }
  return most;
}

// Success if all |actual - expected| <= absolute + relative * |expected|; NaN and infinities must
// be at the same places.
inline ::testing::AssertionResult near(const std::vector<double>& actual,
                                       const std::vector<double>& expected, double absolute,
                                       double relative = 0) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure() << actual.size() << " elements, not " << expected.size();
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i];
    const double e = expected[i];
    if (std::isnan(e) ? std::isnan(a) : a == e) continue;
    if (std::abs(a - e) <= absolute + relative * std::abs(e)) continue;
    return ::testing::AssertionFailure()
           << "element " << i << " of " << actual.size() << " is " << a << ", not " << e
           << "; allowed " << absolute << " + " << relative << " of it";
  }
  return ::testing::AssertionSuccess();
}

// Scale-aware: sums over windows cancel, so an error is measured by the largest element, at least
// `least` (the inputs are of order 1).
inline ::testing::AssertionResult near_by_scale(const std::vector<double>& actual,
                                                const std::vector<double>& expected,
                                                double tolerance, double least = 1) {
  return near(actual, expected, tolerance * std::max(least, largest(expected)));
}

inline void expect_near(const WindowResult& actual, const WindowResult& expected,
                        double tolerance) {
  EXPECT_TRUE(near_by_scale(actual.out, expected.out, tolerance)) << "out";
  EXPECT_TRUE(near_by_scale(actual.grad_scores, expected.grad_scores, tolerance)) << "grad_scores";
  EXPECT_TRUE(near_by_scale(actual.grad_values, expected.grad_values, tolerance)) << "grad_values";
  EXPECT_TRUE(near_by_scale(actual.grad_bias, expected.grad_bias, tolerance)) << "grad_bias";
  EXPECT_TRUE(near_by_scale(actual.grad_tap_weights, expected.grad_tap_weights, tolerance))
      << "grad_tap_weights";
}

inline bool same_bits(const WindowResult& a, const WindowResult& b) {
  return a.out == b.out && a.grad_scores == b.grad_scores && a.grad_values == b.grad_values &&
         a.grad_bias == b.grad_bias && a.grad_tap_weights == b.grad_tap_weights;
}

inline std::string text(const WindowShape& s) {
  return fmt::format(
      "[batch {}, {} x {}, heads {}, dim {}, queries {}, kernel {} x {}, stride {} x {}, padding "
      "{} "
      "{} {} {}, dilation {} x {}, {}]",
      s.batch, s.height, s.width, s.heads, s.head_dim, s.queries, s.kernel_h, s.kernel_w,
      s.stride_h, s.stride_w, s.pad_top, s.pad_bottom, s.pad_left, s.pad_right, s.dilation_h,
      s.dilation_w, s.separate ? "separate" : "combined");
}

inline std::string text(const ProblemOptions& o) {
  return fmt::format("bias {}, tap weights {}, mask {}, heads fast in {} out {}, gap {}, seed {}",
                     o.bias, o.tap_weights, o.mask, o.values_heads_fast, o.out_heads_fast, o.gap,
                     o.seed);
}

// With the padding that keeps the map's size at stride 1 and odd windows.
inline WindowShape padded(WindowShape shape) {
  shape.pad_top = shape.pad_bottom = shape.kernel_h / 2;
  shape.pad_left = shape.pad_right = shape.kernel_w / 2;
  return shape;
}

// Any shape and options, small enough for the reference.
struct RandomProblems {
  explicit RandomProblems(uint32_t seed) : random(seed) {}
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  }
  bool coin() { return random() % 2 == 0; }

  WindowShape shape() {
    WindowShape s;
    s.batch = between(1, 3);
    s.height = between(1, 12);
    s.width = between(1, 24);
    s.heads = between(1, 20);
    s.head_dim = between(1, 12);
    s.queries = between(1, 5);
    s.kernel_h = between(1, 6);
    s.kernel_w = between(1, 6);
    s.stride_h = between(1, 3);
    s.stride_w = between(1, 3);
    s.dilation_h = between(1, 2);
    s.dilation_w = between(1, 2);
    s.pad_top = between(0, 4);
    s.pad_bottom = between(0, 4);
    s.pad_left = between(0, 4);
    s.pad_right = between(0, 4);
    s.separate = coin();
    // The window must fit: padding where the map is too small.
    s.pad_bottom += std::max<int64_t>(0, s.span_h() - s.height - s.pad_top - s.pad_bottom);
    s.pad_right += std::max<int64_t>(0, s.span_w() - s.width - s.pad_left - s.pad_right);
    return s;
  }

  ProblemOptions options() {
    return {.bias = coin(),
            .tap_weights = coin(),
            .mask = coin(),
            .values_heads_fast = coin(),
            .out_heads_fast = coin(),
            .gap = coin() ? 0 : between(1, 9),
            .seed = static_cast<uint32_t>(random())};
  }

  std::mt19937 random;
};

}  // namespace qna::kernels::testing
