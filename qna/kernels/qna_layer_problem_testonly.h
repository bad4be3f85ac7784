// Random problems of the fused layer for the tests.
#pragma once

#include <functional>

#include "qna/kernels/sweep_testonly.h"
#include "qna/kernels/window_shapes_testonly.h"

namespace qna::kernels::testing {

struct QnALayerOptions {
  int64_t in_features = 8;
  int64_t out_features = 8;
  int64_t upsample = 1;  // above 1 sets queries and separate
  bool value_bias = true;
  bool out_bias = true;
  bool bias = true;
  bool tap_weights = true;
  bool mask = false;
  // As a block of a network wants it.
  bool norm = false;
  float epsilon = 1e-6f;
  Residual residual = Residual::kNone;  // kInput: x must be of y's shape
  bool packed = false;
  WeightType weight_type = WeightType::kFloat32;  // where packed
  bool drop_factor = false;  // a factor for each image, the first 0; not when up-sampling
  float score_scale = 1;     // of the scores; large ones need the exact path
  uint32_t seed = 1;
};

inline QnALayerOptions layer_options(const WindowRow& row) {
  return {.in_features = row.in_features,
          .out_features = row.out_features,
          .upsample = row.upsample,
          .value_bias = !row.bare,
          .out_bias = !row.bare,
          .bias = !row.bare,
          .tap_weights = !row.bare,
          .mask = row.bare};
}

// Weights that must not be read do not exist.
template <typename T>
void use_packed(QnALayerArgs<T>& args, const PackedWeights& packed) {
  args.packed = &packed;
  args.score_weight = args.value_weight = args.out_weight = nullptr;
  args.value_bias = args.out_bias = args.bias = args.tap_weights = nullptr;
}

template <typename T>
struct QnALayerProblem {
  QnALayerProblem(WindowShape shape_in, const QnALayerOptions& options_in)
      : shape(shape_in), options(options_in), random(options_in.seed) {
    if (options.upsample > 1) {
      shape.queries = options.upsample * options.upsample;
      shape.separate = true;
    }
    check_shape(shape, "test");
    using Weight = Table<T>;
    const int64_t in = options.in_features, out = options.out_features;
    x = random_cells<T>(random, pixels() * in);
    // Weights by fan-in, so that scores, values and outputs are of order 1.
    score_weight =
        random_cells<Weight>(random, in * shape.scores(), options.score_scale * fan_in(in));
    value_weight = random_cells<Weight>(random, in * shape.features(), fan_in(in));
    out_weight = random_cells<Weight>(random, shape.features() * out, fan_in(shape.features()));
    if (options.value_bias) value_bias = random_cells<Weight>(random, shape.features());
    if (options.out_bias) out_bias = random_cells<Weight>(random, out);
    if (options.bias) bias = random_cells<Weight>(random, table());
    if (options.tap_weights) tap_weights = random_cells<Weight>(random, table());
    if (options.mask) mask = random_mask(pixels(), options.seed);
    for (int64_t n = 0; options.drop_factor && n < shape.batch; ++n) {
      drop_factor.push_back(static_cast<Weight>(n == 0 ? 0 : 1 + 0.25 * static_cast<double>(n)));
    }
    residual = random_cells<T>(random, out_count());
    // Products of up to 70 terms before and up to 120 after the attention, all in float32, of order
    // 1: errors of 1e-6 were seen. A large score is itself off by 2^-23 of its size.
    tolerance.by_scale = 2e-5 + 4 * (options.score_scale - 1) * 0x1p-23;
  }

  int64_t pixels() const { return shape.batch * shape.height * shape.width; }
  int64_t table() const { return shape.taps() * shape.scores(); }
  int64_t out_count() const {
    return shape.batch * shape.out_height() * shape.out_width() * options.upsample *
           options.upsample * options.out_features;
  }

  // All but the output, residual and packed weights.
  QnALayerArgs<T> args() const {
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
            .norm = {.wanted = options.norm, .epsilon = options.epsilon},
            .drop_factor = or_null(drop_factor),
            .weight_type = options.weight_type};
  }

  // y [B, OH, OW, out_features]. `adjust` may change the arguments.
  Results run(int workers = 1, const std::function<void(QnALayerArgs<T>&)>& adjust = {}) const {
    ThreadRuntime runtime(workers);
    PackedWeights packed;
    if constexpr (!std::is_same_v<T, double>) {
      if (options.packed) packed = pack_qna_layer<T>(args(), runtime);
    }
    return one_output<T>(out_count(), tolerance, [&](T* y) {
      QnALayerArgs<T> layer = args();
      layer.y = y;
      layer.residual = residual_of(options.residual, residual, x.data(), y);
      if (options.packed) use_packed(layer, packed);
      if (adjust) adjust(layer);
      qna_layer_forward<T>(layer, runtime);
    });
  }

  int64_t count() const { return shape.batch; }
  QnALayerProblem alone(int64_t image) const {
    QnALayerProblem one = *this;
    one.shape.batch = 1;
    one.x = part_of(x, image, count());
    one.mask = part_of(mask, image, count());
    one.residual = part_of(residual, image, count());
    one.drop_factor = part_of(drop_factor, image, count());
    return one;
  }

  bool is_plain() const { return std::is_same_v<T, float> && !options.packed; }
  QnALayerProblem<float> plain() const {
    QnALayerProblem<float> wide(shape, options);
    wide.options.packed = false;
    wide.x = widen(x);
    wide.residual = widen(residual);
    wide.mask = mask;
    wide.bias = bias;
    return wide;
  }

  void poison(int64_t n, float value) {
    std::fill_n(x.begin() + n * options.in_features, options.in_features, from_float<T>(value));
  }

  std::string text() const {
    const QnALayerOptions& o = options;
    return fmt::format(
        "{} {} {} -> {} features, upsample {}, value bias {}, out bias {}, bias {}, tap weights "
        "{}, "
        "mask {}, norm {} {}, residual {}, packed {}, drop_factor {}, score scale {}, seed {}",
        dtype_name<T>(), testing::text(shape), o.in_features, o.out_features, o.upsample,
        o.value_bias, o.out_bias, o.bias, o.tap_weights, o.mask, o.norm, o.epsilon,
        static_cast<int>(o.residual), o.packed, o.drop_factor, o.score_scale, o.seed);
  }

  WindowShape shape;
  QnALayerOptions options;
  std::mt19937 random;
  std::vector<T> x, residual;
  std::vector<Table<T>> score_weight, value_weight, out_weight;
  std::vector<Table<T>> value_bias, out_bias, bias, tap_weights;  // empty: none
  std::vector<uint8_t> mask;                                      // empty: none
  std::vector<Table<T>> drop_factor;                              // empty: none
  Tolerance tolerance;
};

inline QnALayerOptions random_layer_options(RandomShapes& random, const WindowShape& shape,
                                            int64_t most_features, int round) {
  return {.in_features = random.between(1, most_features),
          .out_features = random.between(1, most_features),
          .upsample = shape.separate ? random.between(2, 3) : 1,
          .value_bias = random.coin(),
          .out_bias = random.coin(),
          .bias = random.coin(),
          .tap_weights = random.coin(),
          .mask = random.coin(),
          .seed = static_cast<uint32_t>(round + 1)};
}

}  // namespace qna::kernels::testing
