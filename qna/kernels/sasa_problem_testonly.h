// Random problems of stand-alone self-attention for the tests, forward and backward.
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

template <typename T>
struct SasaProblem {
  SasaProblem(const WindowShape& shape_in, const SasaOptions& options_in)
      : shape(shape_in), options(options_in) {
    shape.queries = 1;
    shape.separate = false;
    check_shape(shape, "test");
    pixels = shape.batch * shape.height * shape.width;
    windows = shape.batch * shape.out_height() * shape.out_width();
    in_layout = make_layout(shape, options.in_heads_fast, options.gap);
    // Other strides than the inputs', to tell them apart.
    out_layout = make_layout(shape, options.out_heads_fast, options.gap > 0 ? options.gap + 3 : 0);
    std::mt19937 random(options.seed);
    const auto map = [&](int64_t count, float scale) {
      return random_map<T>(random, count, shape.features(), in_layout.pixel_stride, scale);
    };
    q = map(windows, options.scale);
    k = map(pixels, 1.0f);
    v = map(pixels, 1.0f);
    grad_out = map(windows, 1.0f);
    if (options.bias) bias = random_cells<Table<T>>(random, shape.taps() * shape.heads);
    if (options.mask) mask = random_mask(pixels, options.seed);
    // Sums over the dimensions, the taps and, for a gradient, the windows that see a pixel, of
    // terms of order 1; half of them cancel. The bias's gradient sums over all windows.
    const double terms = static_cast<double>(shape.head_dim + shape.taps() + 16);
    tolerance.by_scale = (windows > 2000 ? 16 : 4) * terms * 0x1p-24;
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

  Results run(int workers = 1) const {
    const int64_t stride = out_layout.pixel_stride;
    GuardedOutput<T> out("out", windows * stride), grad_q("grad_q", windows * stride),
        grad_k("grad_k", pixels * stride), grad_v("grad_v", pixels * stride);
    GuardedOutput<Table<T>> grad_bias("grad_bias", shape.taps() * shape.heads);
    ThreadRuntime runtime(workers);
    sasa_forward<T>(args(out.data()), runtime);
    sasa_backward<T>({.forward = args(nullptr),
                      .grad_out = {grad_out.data(), in_layout},
                      .grad_q = {grad_q.data(), out_layout},
                      .grad_k = {grad_k.data(), out_layout},
                      .grad_v = {grad_v.data(), out_layout},
                      .grad_bias = grad_bias.data()},
                     runtime);
    const auto take = [&](GuardedOutput<T>& map, int64_t count) {
      return map.take(count, shape.heads, shape.head_dim, out_layout);
    };
    return {tolerance,
            {take(out, windows), take(grad_q, windows), take(grad_k, pixels), take(grad_v, pixels),
             grad_bias.take()},
            runtime.scratch_bytes()};
  }

  // 16-bit maps: float32 arithmetic from the rounded inputs, then one rounding.
  bool is_plain() const { return std::is_same_v<T, float>; }
  SasaProblem<float> plain() const {
    SasaProblem<float> wide(shape, options);
    wide.q = widen(q);
    wide.k = widen(k);
    wide.v = widen(v);
    wide.grad_out = widen(grad_out);
    wide.bias = bias;
    wide.mask = mask;
    return wide;
  }

  void poison(int64_t n, float value) {
    std::fill_n(k.begin() + n * in_layout.pixel_stride, shape.features(), from_float<T>(value));
    std::fill_n(v.begin() + n * in_layout.pixel_stride, shape.features(), from_float<T>(value));
  }

  std::string text() const {
    const SasaOptions& o = options;
    return fmt::format("{} {} bias {}, mask {}, heads fast in {} out {}, gap {}, scale {}, seed {}",
                       dtype_name<T>(), testing::text(shape), o.bias, o.mask, o.in_heads_fast,
                       o.out_heads_fast, o.gap, o.scale, o.seed);
  }

  WindowShape shape;
  SasaOptions options;
  int64_t pixels, windows;
  ValueLayout in_layout, out_layout;
  std::vector<T> q, k, v, grad_out;
  std::vector<Table<T>> bias;  // empty: none
  std::vector<uint8_t> mask;   // empty: none
  Tolerance tolerance;
};

}  // namespace qna::kernels::testing
