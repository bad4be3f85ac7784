// layer_norm, norm_mean and instance_norm of every implementation against the reference.
#include "qna/kernels/layer_norm.h"

#include "qna/kernels/instance_norm.h"
#include "qna/kernels/product_options_testonly.h"

namespace qna::kernels::testing {
namespace {

enum class Kind { kLayerNorm, kNormMean, kMean, kInstanceNorm };

struct NormOptions {
  bool weight = true;
  bool bias = true;
  bool mask = false;                          // norm_mean
  bool in_place = false;                      // layer_norm, instance_norm
  Activation activation = Activation::kNone;  // instance_norm
  float epsilon = 1e-5f;
};

struct NormProblem {
  NormProblem(Kind kind_in, int64_t batch_in, int64_t positions_in, int64_t features_in,
              const NormOptions& options_in = {})
      : kind(kind_in),
        batch(batch_in),
        positions(positions_in),
        features(features_in),
        options(options_in) {
    x = normal_floats(batch * positions * features, 1);
    weight = normal_floats(features, 2);
    bias = normal_floats(features, 3);
    if (options.mask) mask = random_mask(batch * positions, 4);
  }

  bool is_mean() const { return kind == Kind::kNormMean || kind == Kind::kMean; }

  Results run(int workers = 1) const {
    ThreadRuntime runtime(workers);
    const int64_t outputs = is_mean() ? batch * features : x.size();
    return one_output(outputs, tolerance, [&](float* y) {
      const float* g = options.weight ? weight.data() : nullptr;
      const float* s = options.bias ? bias.data() : nullptr;
      const float* from = x.data();
      if (options.in_place) {
        std::copy_n(x.data(), x.size(), y);
        from = y;
      }
      if (kind == Kind::kLayerNorm) {
        layer_norm({.rows = batch * positions,
                    .features = features,
                    .epsilon = options.epsilon,
                    .weight = g,
                    .bias = s,
                    .x = from,
                    .y = y},
                   runtime);
      } else if (kind == Kind::kInstanceNorm) {
        instance_norm({.batch = batch,
                       .positions = positions,
                       .features = features,
                       .epsilon = options.epsilon,
                       .weight = g,
                       .bias = s,
                       .activation = options.activation,
                       .x = from,
                       .y = y},
                      runtime);
      } else {
        norm_mean({.batch = batch,
                   .positions = positions,
                   .features = features,
                   .epsilon = options.epsilon,
                   .weight = g,
                   .bias = s,
                   .mask = or_null(mask),
                   .x = x.data(),
                   .y = y,
                   .normalize = kind == Kind::kNormMean},
                  runtime);
      }
    });
  }

  int64_t count() const { return batch; }
  NormProblem alone(int64_t image) const {
    NormProblem one = *this;
    one.batch = 1;
    one.x = part_of(x, image, count());
    one.mask = part_of(mask, image, count());
    return one;
  }

  void poison(int64_t n, float value) { std::fill_n(x.data() + n * features, features, value); }

  std::string text() const {
    return fmt::format(
        "kind {}, {} x {} x {}, weight {}, bias {}, mask {}, in place {}, activation {}, epsilon "
        "{}",
        static_cast<int>(kind), batch, positions, features, options.weight, options.bias,
        options.mask, options.in_place, static_cast<int>(options.activation), options.epsilon);
  }

  Kind kind;
  int64_t batch, positions, features;
  NormOptions options;
  OddInput<float> x, weight, bias;
  OddInput<uint8_t> mask;  // empty: none
  // A normalised value is rounded about five times by 2^-24 of itself and times a weight of order 1
  // to 4; the statistics' roundings, of either sign, largely cancel; an activation adds a few more.
  Tolerance tolerance = {.absolute = 4e-6, .relative = 4e-6};
};

template <Kind kKind>
struct Norms {
  static constexpr bool kMean = kKind == Kind::kNormMean || kKind == Kind::kMean;
  static constexpr bool kNormalizes = kKind != Kind::kMean;
  static NormProblem problem(int64_t batch, int64_t positions, int64_t features,
                             const NormOptions& options = {}) {
    return {kKind, batch, positions, features, options};
  }

  static void near(const auto& visit) {
    for (int64_t features = 1; features <= 70; ++features) {
      visit("feature tails", problem(2, 1 + features % 9, features));
    }
    // Beside the positions that are added up in one part.
    for (const int64_t positions : {1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000})
      for (const int64_t features : {1, 3, 16, 40}) {
        visit("positions", problem(2, positions, features, {.mask = kKind == Kind::kNormMean}));
      }
    for (const bool weight : {false, true})
      for (const bool bias : {false, true})
        for (const bool last : {false, true}) {
          visit("all options", problem(3, 30, 21,
                                       {.weight = weight,
                                        .bias = bias,
                                        .mask = kMean && last,
                                        .in_place = !kMean && last}));
        }
    for (const Activation activation : kActivations)
      for (const bool in_place : {false, true}) {
        if (kKind != Kind::kInstanceNorm) continue;
        visit("activations", problem(2, 300, 21, {.in_place = in_place, .activation = activation}));
      }
    // Far from 0 beside the spread: one rounding of x, of 2^-24 of the offset, is already in the
    // input.
    for (const float offset : {1e2f, 1e4f, -1e5f}) {
      if (!kNormalizes) continue;
      NormProblem far = problem(2, 700, 48);
      for (float& value : far.x) value += offset;
      visit(fmt::format("mean of {}", offset), far);
    }
    // One value far from the others, the first or another, in each row and of each feature.
    for (const float outlier : {1e3f, 1e6f})
      for (const int64_t place : {0, 17}) {
        if (kMean) continue;
        NormProblem spoilt = problem(2, 400, 40);
        for (int64_t n = 0; n < 2 * 400; ++n)
          for (int64_t c = 0; c < 40; ++c) {
            const bool there = kKind == Kind::kLayerNorm ? c == place : n % 400 == place;
            if (there) spoilt.x[n * 40 + c] = outlier;
          }
        // LayerNorm's float32 sums hold the outlier up to 40 times, and round by 2^-24 of that.
        spoilt.tolerance.absolute *= 4;
        visit(fmt::format("outlier {} at {}", outlier, place), spoilt);
      }
    for (const float epsilon : {1e-8f, 1e-5f, 1.0f}) {
      NormProblem small = problem(2, 30, 20, {.epsilon = epsilon});
      for (float& value : small.x) value *= 1e-3f;
      visit("epsilon", small);
    }
  }

  static void bits(const auto& visit) {
    for (const int64_t positions : {50, 700}) {
      visit("bits", problem(3, positions, 37, {.mask = kMean, .in_place = !kMean}));
    }
  }

  static void masked(const auto& visit) { visit("masked", problem(2, 90, 20, {.mask = true})); }

  static NormProblem nothing() { return problem(0, 5, 20); }
};

using Means = ::testing::Types<Norms<Kind::kNormMean>, Norms<Kind::kMean>>;
using AllNorms = ::testing::Types<Norms<Kind::kLayerNorm>, Norms<Kind::kInstanceNorm>,
                                  Norms<Kind::kNormMean>, Norms<Kind::kMean>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Norms, Operator, AllNorms);
INSTANTIATE_TYPED_TEST_SUITE_P(Norms, MaskedOperator, Means);

TEST(Norms, ConstantMapsGiveTheBias) {
  for (const Kind kind : {Kind::kLayerNorm, Kind::kNormMean, Kind::kInstanceNorm}) {
    NormProblem problem(kind, 1, 300, 20);
    SCOPED_TRACE(problem.text());
    std::fill(problem.x.begin(), problem.x.end(), 12345.678f);
    for_each_simd([&] {
      const std::vector<double> y = problem.run().cells();
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(y[i], static_cast<double>(problem.bias[static_cast<int64_t>(i) % 20]));
      }
    });
  }
}

// A mean of many values near each other, to 1e-6 of it: sums are not in float32.
TEST(Norms, MeanOfManyPositions) {
  NormProblem problem(Kind::kMean, 1, 100'000, 3, {.weight = false, .bias = false});
  for (float& value : problem.x) value = value * 0.01f + 1;
  problem.tolerance = {.relative = 1e-6};
  compare_all(problem);
}

TEST(Norms, AnImageWithoutPositionsGivesZero) {
  for (const Kind kind : {Kind::kNormMean, Kind::kMean}) {
    NormProblem problem(kind, 2, 90, 20, {.mask = true});
    std::fill_n(problem.mask.data() + 90, 90, 0);
    compare_all(problem);
    for_each_simd([&] {
      EXPECT_EQ(part_of(problem.run().cells(), 1, 2), std::vector<double>(20, 0));
      EXPECT_EQ(NormProblem(kind, 2, 0, 20).run().cells(), std::vector<double>(40, 0));
    });
  }
}

TEST(Norms, NanStaysInItsRowOrFeature) {
  for (const Kind kind : {Kind::kLayerNorm, Kind::kNormMean, Kind::kMean, Kind::kInstanceNorm})
    for (const float poison : {kNan, kInfinity}) {
      NormProblem problem(kind, 2, 50, 20);
      problem.x[(50 + 7) * 20 + 3] = poison;  // in the second image
      const std::vector<double> y = compare_all(problem).cells();
      const auto poisoned =
          std::count_if(y.begin(), y.end(), [](double v) { return !std::isfinite(v); });
      EXPECT_EQ(poisoned, kind == Kind::kInstanceNorm ? 50 : kind == Kind::kMean ? 1 : 20);
    }
}

}  // namespace
}  // namespace qna::kernels::testing
