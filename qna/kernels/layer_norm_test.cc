// layer_norm, norm_mean and instance_norm of every implementation against the reference.
#include "qna/kernels/layer_norm.h"

#include "qna/kernels/instance_norm.h"
#include "qna/kernels/network_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

enum class Kind { kLayerNorm, kNormMean, kMean, kInstanceNorm };
constexpr Kind kKinds[] = {Kind::kLayerNorm, Kind::kNormMean, Kind::kMean, Kind::kInstanceNorm};

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

  std::vector<double> run(const Implementation& implementation, int workers) const {
    ThreadRuntime runtime(workers);
    const int64_t outputs = is_mean() ? batch * features : x.size();
    return collect_guarded<float>(outputs, [&](float* y) {
      const float* g = options.weight ? weight.data() : nullptr;
      const float* s = options.bias ? bias.data() : nullptr;
      const float* from = x.data();
      if (options.in_place) {
        std::copy_n(x.data(), x.size(), y);
        from = y;
      }
      if (kind == Kind::kLayerNorm) {
        implementation.layer_norm({.rows = batch * positions,
                                   .features = features,
                                   .epsilon = options.epsilon,
                                   .weight = g,
                                   .bias = s,
                                   .x = from,
                                   .y = y},
                                  runtime);
      } else if (kind == Kind::kInstanceNorm) {
        implementation.instance_norm({.batch = batch,
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
        implementation.norm_mean({.batch = batch,
                                  .positions = positions,
                                  .features = features,
                                  .epsilon = options.epsilon,
                                  .weight = g,
                                  .bias = s,
                                  .mask = mask.or_null(),
                                  .x = x.data(),
                                  .y = y,
                                  .normalize = kind == Kind::kNormMean},
                                 runtime);
      }
    });
  }

  NormProblem image(int64_t b) const {
    NormProblem one = *this;
    one.batch = 1;
    one.x = x.part(b, positions * features);
    one.mask = mask.part(b, mask.size() / batch);
    return one;
  }

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
};

// A normalised value is rounded about five times by 2^-24 of itself and times a weight of order 1
// to 4; the statistics' roundings, of either sign, largely cancel; an activation adds a few more.
constexpr double kTolerance = 4e-6;

void compare(const NormProblem& problem) { compare_all(problem, kTolerance, kTolerance); }

TEST(Norms, EveryFeatureTail) {
  for (const Kind kind : kKinds)
    for (int64_t features = 1; features <= 70 && !HasFailure(); ++features) {
      compare({kind, 2, 1 + features % 9, features});
    }
}

// Beside the positions that are added up in one part.
TEST(Norms, Positions) {
  for (const Kind kind : kKinds)
    for (const int64_t positions : {1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000})
      for (const int64_t features : {1, 3, 16, 40}) {
        compare({kind, 2, positions, features, {.mask = kind == Kind::kNormMean}});
        if (HasFailure()) return;
      }
}

TEST(Norms, AllOptions) {
  for (const Kind kind : kKinds)
    for (const bool weight : {false, true})
      for (const bool bias : {false, true})
        for (const bool last : {false, true}) {
          const bool mean = kind == Kind::kNormMean || kind == Kind::kMean;
          compare(
              {kind,
               3,
               30,
               21,
               {.weight = weight, .bias = bias, .mask = mean && last, .in_place = !mean && last}});
        }
  for (const Activation activation : kActivations)
    for (const bool in_place : {false, true}) {
      compare({Kind::kInstanceNorm, 2, 300, 21, {.in_place = in_place, .activation = activation}});
    }
}

// Far from 0 beside the spread: one rounding of x, of 2^-24 of the offset, is already in the input.
TEST(Norms, LargeMeans) {
  for (const Kind kind : {Kind::kLayerNorm, Kind::kNormMean, Kind::kInstanceNorm})
    for (const float offset : {1e2f, 1e4f, -1e5f}) {
      NormProblem problem(kind, 2, 700, 48);
      for (float& value : problem.x) value += offset;
      SCOPED_TRACE(offset);
      compare(problem);
    }
}

// One value far from the others, the first or another, in each row and of each feature.
TEST(Norms, Outliers) {
  for (const Kind kind : {Kind::kLayerNorm, Kind::kInstanceNorm})
    for (const float outlier : {1e3f, 1e6f})
      for (const int64_t place : {0, 17}) {
        NormProblem problem(kind, 2, 400, 40);
        for (int64_t n = 0; n < 2 * 400; ++n)
          for (int64_t c = 0; c < 40; ++c) {
            const bool there = kind == Kind::kLayerNorm ? c == place : n % 400 == place;
            if (there) problem.x[n * 40 + c] = outlier;
          }
        SCOPED_TRACE(fmt::format("{} at {}", outlier, place));
        // LayerNorm's float32 sums hold the outlier up to 40 times, and round by 2^-24 of that.
        compare_all(problem, 4 * kTolerance, kTolerance);
      }
}

TEST(Norms, ConstantMapsGiveTheBias) {
  for (const Kind kind : {Kind::kLayerNorm, Kind::kNormMean, Kind::kInstanceNorm}) {
    NormProblem problem(kind, 1, 300, 20);
    std::fill(problem.x.begin(), problem.x.end(), 12345.678f);
    for (const Implementation* implementation : simd_implementations()) {
      const std::vector<double> y = problem.run(*implementation, 1);
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(y[i], static_cast<double>(problem.bias[static_cast<int64_t>(i) % 20]));
      }
    }
  }
}

TEST(Norms, Epsilon) {
  for (const Kind kind : {Kind::kLayerNorm, Kind::kNormMean, Kind::kInstanceNorm})
    for (const float epsilon : {1e-8f, 1e-5f, 1.0f}) {
      NormProblem problem(kind, 2, 30, 20, {.epsilon = epsilon});
      for (float& value : problem.x) value *= 1e-3f;
      compare(problem);
    }
}

TEST(Norms, SameBitsForAnyWorkersAndAlone) {
  for (const Kind kind : kKinds)
    for (const int64_t positions : {50, 700}) {
      const bool mean = kind == Kind::kNormMean || kind == Kind::kMean;
      const NormProblem problem(kind, 3, positions, 37, {.mask = mean, .in_place = !mean});
      expect_same_bits_for_any_workers(problem);
      expect_same_bits_alone(problem, 3);
    }
}

// A mean of many values near each other, to 1e-6 of it: sums are not in float32.
TEST(Norms, MeanOfManyPositions) {
  NormProblem problem(Kind::kMean, 1, 100'000, 3, {.weight = false, .bias = false});
  for (float& value : problem.x) value = value * 0.01f + 1;
  compare_all(problem, 0, 1e-6);
}

TEST(Norms, MaskedPositionsDoNotMatter) {
  for (const Kind kind : {Kind::kNormMean, Kind::kMean}) {
    const NormProblem clean(kind, 2, 90, 20, {.mask = true});
    NormProblem problem = clean;
    for (int64_t n = 0; n < 2 * 90; ++n) {
      if (problem.mask[n] == 0) std::fill_n(problem.x.data() + n * 20, 20, kNan);
    }
    for (const Implementation& implementation : implementations()) {
      if (!implementation.supported) continue;
      EXPECT_EQ(clean.run(implementation, 1), problem.run(implementation, 1));
    }
  }
}

TEST(Norms, AnImageWithoutPositionsGivesZero) {
  for (const Kind kind : {Kind::kNormMean, Kind::kMean}) {
    NormProblem problem(kind, 2, 90, 20, {.mask = true});
    std::fill_n(problem.mask.data() + 90, 90, 0);
    compare(problem);
    for (const Implementation* implementation : simd_implementations()) {
      const std::vector<double> y = problem.run(*implementation, 1);
      EXPECT_TRUE(std::all_of(y.begin() + 20, y.end(), [](double v) { return v == 0; }));
      EXPECT_EQ(NormProblem(kind, 2, 0, 20).run(*implementation, 1), std::vector<double>(40, 0));
    }
  }
}

TEST(Norms, NanStaysInItsRowOrFeature) {
  for (const Kind kind : kKinds)
    for (const float poison : {kNan, kInfinity}) {
      NormProblem problem(kind, 2, 50, 20);
      problem.x[(50 + 7) * 20 + 3] = poison;  // in the second image
      const std::vector<double> y = problem.run(reference(), 1);
      const auto poisoned =
          std::count_if(y.begin(), y.end(), [](double v) { return !std::isfinite(v); });
      EXPECT_EQ(poisoned, kind == Kind::kInstanceNorm ? 50 : kind == Kind::kMean ? 1 : 20);
      compare(problem);
    }
}

TEST(Norms, Nothing) {
  for (const Kind kind : kKinds)
    for (const Implementation* implementation : simd_implementations()) {
      EXPECT_TRUE(NormProblem(kind, 0, 5, 20).run(*implementation, 2).empty());
    }
}

}  // namespace
}  // namespace qna::kernels::testing
