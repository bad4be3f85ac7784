// Random problems of stand-alone self-attention for the tests: inputs without one element to spare,
// outputs between guards.
#pragma once

#include "qna/kernels/sasa.h"
#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {

struct SasaOptions {
  bool bias = true;
  bool mask = false;
  bool in_heads_fast = false;  // the two layouts of ValueLayout
  bool out_heads_fast = false;
  int64_t gap = 0;     // elements between one pixel's channels and the next pixel's
  float scale = 1.0f;  // of q
  uint32_t seed = 1;
};

inline std::string text(const SasaOptions& o) {
  return fmt::format("bias {}, mask {}, heads fast in {} out {}, gap {}, scale {}, seed {}", o.bias,
                     o.mask, o.in_heads_fast, o.out_heads_fast, o.gap, o.scale, o.seed);
}

template <typename T>
struct SasaProblem {
  SasaProblem(const WindowShape& shape_in, const SasaOptions& options_in)
      : shape(shape_in), options(options_in), random(options_in.seed) {
    shape.queries = 1;
    shape.separate = false;
    check_shape(shape, "test");
    pixels = shape.batch * shape.height * shape.width;
    windows = shape.batch * shape.out_height() * shape.out_width();
    in_layout = make_layout(shape, options.in_heads_fast, options.gap);
    // Other strides than the inputs', to tell them apart.
    out_layout = make_layout(shape, options.out_heads_fast, options.gap > 0 ? options.gap + 3 : 0);
    q = map(windows, options.scale);
    k = map(pixels, 1.0f);
    v = map(pixels, 1.0f);
    grad_out = map(windows, 1.0f);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; options.bias && i < shape.taps() * shape.heads; ++i) {
      bias.push_back(normal(random));
    }
    for (int64_t n = 0; options.mask && n < pixels; ++n) mask.push_back(random() % 4 != 0);
  }

  // NaN between the pixels; ends with the last channel, so that a sanitizer sees any read past it.
  std::vector<T> map(int64_t count, float scale) {
    if (count == 0) return {};
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<T> cells((count - 1) * in_layout.pixel_stride + shape.features(),
                         from_float<T>(std::numeric_limits<float>::quiet_NaN()));
    for (int64_t n = 0; n < count; ++n)
      for (int64_t c = 0; c < shape.features(); ++c) {
        cells[n * in_layout.pixel_stride + c] = from_float<T>(normal(random));
      }
    return cells;
  }

  SasaArgs<T> args(T* out) const {
    return {.shape = shape,
            .q = {q.data(), in_layout},
            .k = {k.data(), in_layout},
            .v = {v.data(), in_layout},
            .bias = or_null(bias),
            .mask = or_null(mask),
            .out = {out, out_layout}};
  }

  WindowShape shape;
  SasaOptions options;
  std::mt19937 random;
  int64_t pixels, windows;
  ValueLayout in_layout, out_layout;
  std::vector<T> q, k, v, grad_out;
  std::vector<Table<T>> bias;  // empty: none
  std::vector<uint8_t> mask;   // empty: none
};

template <typename T>
std::string text(const SasaProblem<T>& p) {
  return fmt::format("{} {}", text(p.shape), text(p.options));
}

// A kernel's results in the plain order [.., heads, dim], whatever layout it wrote.
struct SasaResult {
  std::vector<double> out, grad_q, grad_k, grad_v, grad_bias;
};

inline bool same_bits(const SasaResult& a, const SasaResult& b) {
  return a.out == b.out && a.grad_q == b.grad_q && a.grad_k == b.grad_k && a.grad_v == b.grad_v &&
         a.grad_bias == b.grad_bias;
}

inline void expect_near(const SasaResult& actual, const SasaResult& expected, double tolerance) {
  EXPECT_TRUE(near_by_scale(actual.out, expected.out, tolerance)) << "out";
  EXPECT_TRUE(near_by_scale(actual.grad_q, expected.grad_q, tolerance)) << "grad_q";
  EXPECT_TRUE(near_by_scale(actual.grad_k, expected.grad_k, tolerance)) << "grad_k";
  EXPECT_TRUE(near_by_scale(actual.grad_v, expected.grad_v, tolerance)) << "grad_v";
  EXPECT_TRUE(near_by_scale(actual.grad_bias, expected.grad_bias, tolerance)) << "grad_bias";
}

template <typename T, typename Forward, typename Backward>
SasaResult run(const SasaProblem<T>& p, Forward forward, Backward backward, int workers = 1) {
  const int64_t table = p.shape.taps() * p.shape.heads;
  GuardedOutput<T> out(p.windows * p.out_layout.pixel_stride);
  GuardedOutput<T> grad_q(p.windows * p.out_layout.pixel_stride);
  GuardedOutput<T> grad_k(p.pixels * p.out_layout.pixel_stride);
  GuardedOutput<T> grad_v(p.pixels * p.out_layout.pixel_stride);
  GuardedOutput<Table<T>> grad_bias(table);
  ThreadRuntime runtime(workers);
  forward(p.args(out.data()), runtime);
  backward(SasaBackwardArgs<T>{.forward = p.args(nullptr),
                               .grad_out = {p.grad_out.data(), p.in_layout},
                               .grad_q = {grad_q.data(), p.out_layout},
                               .grad_k = {grad_k.data(), p.out_layout},
                               .grad_v = {grad_v.data(), p.out_layout},
                               .grad_bias = grad_bias.data()},
           runtime);
  SasaResult result{collect_values(out, p.shape, p.windows, p.out_layout),
                    collect_values(grad_q, p.shape, p.windows, p.out_layout),
                    collect_values(grad_k, p.shape, p.pixels, p.out_layout),
                    collect_values(grad_v, p.shape, p.pixels, p.out_layout),
                    collect_rows(grad_bias, 1, table, table)};
  EXPECT_TRUE(out.intact() && grad_q.intact() && grad_k.intact() && grad_v.intact() &&
              grad_bias.intact())
      << "written outside an output";
  return result;
}

template <typename T>
SasaResult run_reference(const SasaProblem<T>& p) {
  return run(p, &sasa_forward_reference<T>, &sasa_backward_reference<T>);
}

template <typename T>
SasaResult run_implementation(const Implementation& implementation, const SasaProblem<T>& p,
                              int workers = 1) {
  const KernelTable<T>& table = kernels_of<T>(implementation);
  return run(p, table.sasa, table.sasa_backward, workers);
}

// Sums over the dimensions, the taps and, for a gradient, the windows that see a pixel, of terms of
// order 1; half of them cancel.
inline double float_tolerance(const WindowShape& s) {
  return 4 * static_cast<double>(s.head_dim + s.taps() + 16) * 0x1p-24;
}

// Every implementation against the reference, output and gradients.
template <typename T>
void compare_all(const SasaProblem<T>& problem, double tolerance) {
  const SasaResult expected = run_reference(problem);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(fmt::format("{} {}", implementation->name, text(problem)));
    expect_near(run_implementation(*implementation, problem), expected, tolerance);
  }
}
inline void compare_all(const SasaProblem<float>& problem) {
  compare_all(problem, float_tolerance(problem.shape));
}

}  // namespace qna::kernels::testing
