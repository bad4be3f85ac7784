// Random problems for the fused layer; see window_problem_testonly.h.
#pragma once

#include <functional>

#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {

struct LayerOptions {
  int64_t in_features = 8;
  int64_t out_features = 8;
  int64_t upsample = 1;  // above 1 sets queries and separate
  bool value_bias = true;
  bool out_bias = true;
  bool bias = true;
  bool tap_weights = true;
  bool mask = false;
  // As the first half of a block: not when up-sampling.
  bool norm = false;
  bool keep = false;      // a factor for each image, the first 0
  bool residual = false;  // x, which must be of y's shape
  float score_scale = 1;  // of the scores; large ones need the exact path
  uint32_t seed = 1;
};

template <typename T>
struct LayerProblem {
  LayerProblem(WindowShape shape_in, const LayerOptions& options_in)
      : shape(shape_in), options(options_in), random(options_in.seed) {
    if (options.upsample > 1) {
      shape.queries = options.upsample * options.upsample;
      shape.separate = true;
    }
    check_shape(shape, "test");
    const int64_t pixels = shape.batch * shape.height * shape.width;
    const int64_t in = options.in_features;
    for (const float cell : normal<float>(pixels * in, 1)) x.push_back(from_float<T>(cell));
    // Weights by fan-in, so that scores, values and outputs are of order 1.
    const float in_scale = 1 / std::sqrt(static_cast<float>(in));
    score_weight = normal<Table<T>>(in * shape.scores(), options.score_scale * in_scale);
    value_weight = normal<Table<T>>(in * shape.features(), in_scale);
    out_weight = normal<Table<T>>(shape.features() * options.out_features,
                                  1 / std::sqrt(static_cast<float>(shape.features())));
    if (options.value_bias) value_bias = normal<Table<T>>(shape.features(), 1);
    if (options.out_bias) out_bias = normal<Table<T>>(options.out_features, 1);
    if (options.bias) bias = normal<Table<T>>(shape.taps() * shape.scores(), 1);
    if (options.tap_weights) tap_weights = normal<Table<T>>(shape.taps() * shape.scores(), 1);
    if (options.mask) {
      for (int64_t n = 0; n < pixels; ++n) mask.push_back(random() % 4 != 0);
    }
    for (int64_t n = 0; options.keep && n < shape.batch; ++n) {
      keep.push_back(static_cast<Table<T>>(n == 0 ? 0 : 1 + 0.25 * static_cast<double>(n)));
    }
  }

  template <typename Cell>
  std::vector<Cell> normal(int64_t count, float scale) {
    std::normal_distribution<float> distribution(0.0f, scale);
    std::vector<Cell> cells(count);
    for (Cell& cell : cells) cell = distribution(random);
    return cells;
  }

  int64_t out_height() const { return shape.out_height() * options.upsample; }
  int64_t out_width() const { return shape.out_width() * options.upsample; }
  int64_t out_count() const {
    return shape.batch * out_height() * out_width() * options.out_features;
  }

  // All but the output.
  LayerArgs<T> args() const {
    return {.shape = shape,
            .in_features = options.in_features,
            .out_features = options.out_features,
            .upsample = options.upsample,
            .x = x.data(),
            .score_weight = score_weight.data(),
            .value_weight = value_weight.data(),
            .value_bias = or_null(value_bias),
            .out_weight = out_weight.data(),
            .out_bias = or_null(out_bias),
            .bias = or_null(bias),
            .tap_weights = or_null(tap_weights),
            .mask = or_null(mask),
            .y = nullptr,
            .norm = {.wanted = options.norm},
            .residual = options.residual ? x.data() : nullptr,
            .keep = or_null(keep)};
  }

  // y [B, OH, OW, out_features]. `adjust` may change the arguments and write to y before the call.
  template <typename Kernel>
  std::vector<double> run(Kernel kernel, int workers = 1,
                          const std::function<void(LayerArgs<T>&)>& adjust = {}) const {
    ThreadRuntime runtime(workers);
    return collect_guarded<T>(out_count(), [&](T* y) {
      LayerArgs<T> layer = args();
      layer.y = y;
      if (adjust) adjust(layer);
      kernel(layer, runtime);
    });
  }
  std::vector<double> run(const Implementation& implementation, int workers = 1,
                          const std::function<void(LayerArgs<T>&)>& adjust = {}) const {
    return run(kernels_of<T>(implementation).layer, workers, adjust);
  }

  WindowShape shape;
  LayerOptions options;
  std::mt19937 random;
  std::vector<T> x;
  std::vector<Table<T>> score_weight, value_weight, out_weight;
  std::vector<Table<T>> value_bias, out_bias, bias, tap_weights;  // empty: none
  std::vector<uint8_t> mask;                                      // empty: none
  std::vector<Table<T>> keep;                                     // empty: none
};

inline std::string text(const LayerOptions& o) {
  return fmt::format(
      "{} -> {} features, upsample {}, value bias {}, out bias {}, bias {}, tap weights {}, mask "
      "{}, norm {}, keep {}, residual {}, score scale {}, seed {}",
      o.in_features, o.out_features, o.upsample, o.value_bias, o.out_bias, o.bias, o.tap_weights,
      o.mask, o.norm, o.keep, o.residual, o.score_scale, o.seed);
}

// Float32 arithmetic, as in window_attention_test.cc and layer_test.cc.
inline constexpr double kArithmetic = 2e-5;

// Every element must be the rounding of some number as near to the expected one as float32
// arithmetic comes: rounding is monotonic, so it lies between those of the two ends.
template <typename T>
void expect_rounded(const std::vector<double>& actual, const std::vector<double>& expected,
                    const char* what) {
  ASSERT_EQ(actual.size(), expected.size());
  const double arithmetic = kArithmetic * std::max(1.0, largest(expected));
  const auto rounded = [](double value) {
    return to_float(from_float<T>(static_cast<float>(value)));
  };
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_GE(actual[i], rounded(expected[i] - arithmetic)) << what << " element " << i;
    ASSERT_LE(actual[i], rounded(expected[i] + arithmetic)) << what << " element " << i;
  }
}

template <typename T>
std::vector<float> widen(const std::vector<T>& cells) {
  std::vector<float> wide;
  for (const T& cell : cells) wide.push_back(to_float(cell));
  return wide;
}

}  // namespace qna::kernels::testing
