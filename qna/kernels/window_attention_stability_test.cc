// Scores, biases and maps that break a careless softmax: every finite input has an exact answer,
// and what takes no part must not matter, whatever it holds.
#include <functional>

#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A logit u is a float32 of up to 90 where exp(u) still counts, so it is off by 4e-6 at most, and
// its exponential by as much of itself.
constexpr double kTolerance = 3e-5;

// Tiles of 4 windows, borders on all sides, heads that leave lanes empty, and the last query alone.
WindowShape base_shape() {
  return {.batch = 2,
          .height = 7,
          .width = 15,
          .heads = 5,
          .head_dim = 3,
          .queries = 3,
          .pad_top = 1,
          .pad_bottom = 1,
          .pad_left = 1,
          .pad_right = 1};
}

using Problem = WindowProblem<float>;
using Spoil = std::function<void(Problem&)>;

// fn(value, pixel, channel) -> the new score.
template <typename Fn>
Spoil each_score(Fn fn) {
  return [fn](Problem& p) {
    const int64_t pixels = p.shape.batch * p.shape.height * p.shape.width;
    for (int64_t n = 0; n < pixels; ++n)
      for (int64_t c = 0; c < p.shape.scores(); ++c) {
        float& score = p.scores[n * p.score_stride + c];
        score = fn(score, n, c);
      }
  };
}

// Runs every implementation on the base shape, combined and separate, with and without bias and
// mask, after `spoil`, and compares with the reference. All results must be finite.
void compare(const Spoil& spoil, bool bias_too = true, double tolerance = kTolerance) {
  for (int choice = 0; choice < 8; ++choice) {
    WindowShape shape = base_shape();
    shape.separate = (choice & 1) != 0;
    const bool bias = (choice & 2) != 0;
    if (bias && !bias_too) continue;
    Problem problem(shape, {.bias = bias, .mask = (choice & 4) != 0, .gap = choice % 3});
    spoil(problem);
    const WindowResult expected = run_reference(problem);
    for (const Implementation* implementation : simd_implementations()) {
      SCOPED_TRACE(std::string(implementation->name) + " " + text(shape) + " " +
                   text(problem.options));
      const WindowResult actual = run_implementation(*implementation, problem);
      expect_near(actual, expected, tolerance);
      for (const auto* part : {&actual.out, &actual.grad_scores, &actual.grad_values,
                               &actual.grad_bias, &actual.grad_tap_weights}) {
        EXPECT_TRUE(
            std::all_of(part->begin(), part->end(), [](double v) { return std::isfinite(v); }));
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(WindowAttentionStability, LargeScoresMixedInOneWindow) {
  compare(each_score([](float score, int64_t n, int64_t c) {
    return score + static_cast<float>((n * 7 + c * 3) % 3 - 1) * 1e4f;
  }));
}

TEST(WindowAttentionStability, WholeWindowsFarBelowOthers) {
  compare(each_score([](float score, int64_t n, int64_t) {
    return score + (n % 15 < 7 ? -1e4f : 0.0f);  // the left half of the columns
  }));
}

TEST(WindowAttentionStability, WholeWindowsFarAboveOthers) {
  compare(each_score([](float score, int64_t n, int64_t c) {
    return score + (n % 105 / 15 < 3 ? 1e4f : 0.0f) - (c == 4 ? 2e4f : 0.0f);
  }));
}

// Steps across every threshold of the fast way: exp of float32 ends near -103 and 88.
TEST(WindowAttentionStability, EveryMagnitude) {
  for (const float magnitude : {20.0f, 50.0f, 60.0f, 80.0f, 83.0f, 87.0f, 88.5f, 95.0f, 104.0f,
                                200.0f, 1e3f, 1e6f, 1e20f}) {
    for (const float sign : {-1.0f, 1.0f}) {
      SCOPED_TRACE(sign * magnitude);
      // All scores there, then every other pixel, then one pixel in five.
      for (const int64_t every : {1, 2, 5}) {
        compare(each_score([=](float score, int64_t n, int64_t) {
                  return score + (n % every == 0 ? sign * magnitude : 0.0f);
                }),
                // Above 1e6 a bias of order 1 is lost in score + bias, which is how the reference
                // adds them.
                magnitude <= 1e6f);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(WindowAttentionStability, HugeFiniteScores) {
  compare(each_score([](float score, int64_t n, int64_t c) {
            const int64_t choice = (n * 5 + c) % 4;
            return choice == 0 ? 3e38f : choice == 1 ? -3e38f : score;
          }),
          false);
}

// Scores that are all alike cancel, so the answer is that of zeros. (The reference adds score and
// bias, and 3e38 swallows the bias even in double; the kernels do not.)
TEST(WindowAttentionStability, EqualHugeScoresCancel) {
  Problem problem(base_shape(), {});
  std::fill(problem.scores.begin(), problem.scores.end(), 0.0f);
  const WindowResult expected = run_reference(problem);
  for (const float score : {-3e38f, -1e10f, 1e10f, 3e38f}) {
    std::fill(problem.scores.begin(), problem.scores.end(), score);
    for (const Implementation* implementation : simd_implementations()) {
      SCOPED_TRACE(std::string(implementation->name) + " " + std::to_string(score));
      expect_near(run_implementation(*implementation, problem), expected, kTolerance);
    }
  }
}

TEST(WindowAttentionStability, Denormals) {
  compare(each_score([](float score, int64_t, int64_t) { return score * 1e-40f; }));
  // Denormal values: the answer is as small, so it is measured by its own size.
  Problem problem(base_shape(), {.gap = 1});
  for (float& value : problem.values) value *= 1e-39f;
  const WindowResult expected = run_reference(problem);
  ASSERT_GT(largest(expected.out), 0);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(implementation->name);
    const WindowResult actual = run_implementation(*implementation, problem);
    // 27 products, each rounded to a multiple of 1.4e-45.
    EXPECT_TRUE(near(actual.out, expected.out, 27 * 1.4e-45, 1e-5));
  }
}

// Biases as far apart as scores; the fast way's table of exp(bias) cannot hold them. Score and bias
// each are taken less a maximum and then added: numbers of size `spread`, which may cancel, are
// rounded twice, to 2^-24 of it.
TEST(WindowAttentionStability, BiasesFarApart) {
  for (const float spread : {5.0f, 15.0f, 18.0f, 40.0f, 90.0f, 500.0f, 1e4f}) {
    SCOPED_TRACE(spread);
    const double tolerance = kTolerance + 2 * spread * 0x1p-24;
    // At a border, all taps that are left may be far below one that is not.
    const Spoil apart = [=](Problem& p) {
      for (size_t i = 0; i < p.bias.size(); ++i) p.bias[i] += i % 4 == 0 ? spread : 0.0f;
    };
    compare(apart, true, tolerance);
    const Spoil against_scores = [=](Problem& p) {
      for (size_t i = 0; i < p.bias.size(); ++i) p.bias[i] -= i % 3 == 0 ? spread : 0.0f;
      each_score(
          [=](float score, int64_t n, int64_t) { return score + (n % 4 == 0 ? spread : 0.0f); })(p);
    };
    compare(against_scores, true, tolerance);
    const Spoil all_alike = [=](Problem& p) {
      for (float& bias : p.bias) bias += 100 * spread;
    };
    compare(all_alike);
    if (HasFailure()) return;
  }
}

TEST(WindowAttentionStability, BiasOfMinusInfinity) {
  compare([](Problem& p) {
    for (size_t i = 0; i < p.bias.size(); ++i) {
      if (i % 3 == 0) p.bias[i] = -kInfinity;
    }
  });
  // A query and head that no tap is left of, beside others that have all.
  compare([](Problem& p) {
    for (size_t i = 0; i < p.bias.size(); ++i) {
      if (i % p.shape.scores() == 7) p.bias[i] = -kInfinity;
    }
  });
  // Only the upper left tap: border windows have none.
  compare([](Problem& p) {
    for (size_t i = p.shape.scores(); i < p.bias.size(); ++i) p.bias[i] = -kInfinity;
  });
}

TEST(WindowAttentionStability, ScoresOfMinusInfinity) {
  compare(each_score(
      [](float score, int64_t n, int64_t c) { return (n * 3 + c) % 4 == 0 ? -kInfinity : score; }));
  // Whole windows of some queries and heads.
  compare(
      each_score([](float score, int64_t, int64_t c) { return c % 3 == 1 ? -kInfinity : score; }));
  compare(each_score([](float, int64_t, int64_t) { return -kInfinity; }));
}

// What a masked pixel holds must not matter in a single bit.
TEST(WindowAttentionStability, MaskedPixelsDoNotMatter) {
  for (const float poison : {kInfinity, -kInfinity, kNaN, 3e38f}) {
    SCOPED_TRACE(poison);
    for (const bool separate : {false, true}) {
      WindowShape shape = base_shape();
      shape.separate = separate;
      const Problem clean(shape, {.mask = true});
      Problem problem = clean;
      for (size_t n = 0; n < problem.mask.size(); ++n) {
        if (problem.mask[n] != 0) continue;
        std::fill_n(problem.scores.begin() + n * problem.score_stride, shape.scores(), poison);
        std::fill_n(problem.values.begin() + n * problem.value_layout.pixel_stride,
                    shape.features(), poison);
      }
      for (const Implementation& implementation : implementations()) {
        if (!implementation.supported) continue;
        SCOPED_TRACE(implementation.name);
        EXPECT_TRUE(same_bits(run_implementation(implementation, problem),
                              run_implementation(implementation, clean)));
      }
    }
  }
}

// Whatever is not 0 takes part, not only 1.
TEST(WindowAttentionStability, MaskIsZeroOrNot) {
  const Problem ones(base_shape(), {.mask = true});
  Problem others = ones;
  for (uint8_t& cell : others.mask) cell = cell != 0 ? 0x80 : 0;
  for (const Implementation* implementation : simd_implementations()) {
    EXPECT_TRUE(same_bits(run_implementation(*implementation, ones),
                          run_implementation(*implementation, others)));
  }
}

TEST(WindowAttentionStability, AllMaskedGivesZero) {
  for (const bool separate : {false, true}) {
    WindowShape shape = base_shape();
    shape.separate = separate;
    Problem problem(shape, {.mask = true});
    // The whole second image, and in the first a block that some windows lie within.
    for (int64_t n = 0; n < static_cast<int64_t>(problem.mask.size()); ++n) {
      problem.mask[n] = n < 105 && n % 15 >= 6;
    }
    std::fill(problem.scores.begin(), problem.scores.end(), 1.0f);
    for (const Implementation& implementation : implementations()) {
      if (!implementation.supported) continue;
      SCOPED_TRACE(implementation.name);
      const WindowResult actual = run_implementation(implementation, problem);
      for (size_t i = 0; i < actual.out.size(); ++i) {
        const int64_t window = static_cast<int64_t>(i) / shape.features() / shape.outputs();
        const bool empty = window >= 105 || window % 15 < 5;
        ASSERT_EQ(actual.out[i] == 0, empty) << window;
      }
      for (size_t i = 0; i < actual.grad_values.size(); ++i) {
        const int64_t pixel = static_cast<int64_t>(i) / shape.features();
        ASSERT_EQ(actual.grad_values[i] == 0, problem.mask[pixel] == 0) << pixel;
      }
      for (size_t i = 0; i < actual.grad_scores.size(); ++i) {
        const int64_t pixel = static_cast<int64_t>(i) / shape.scores();
        if (problem.mask[pixel] == 0) {
          ASSERT_EQ(actual.grad_scores[i], 0);
        }
      }
    }
  }
}

// A NaN that takes part shows in exactly the windows, queries and heads that see it.
TEST(WindowAttentionStability, NaNStaysWhereItIs) {
  for (const bool separate : {false, true})
    for (const bool in_score : {true, false}) {
      WindowShape shape = base_shape();
      shape.separate = separate;
      Problem problem(shape, {});
      const int64_t row = 3, column = 8, head = 2, query = 1;
      const int64_t pixel = row * shape.width + column;
      if (in_score) {
        problem.scores[problem.score_index(pixel, query, head)] = kNaN;
      } else {
        problem.values[problem.value_index(pixel, head, 1)] = kNaN;
      }
      const WindowResult expected = run_reference(problem);
      const int64_t nans = std::count_if(expected.out.begin(), expected.out.end(),
                                         [](double v) { return std::isnan(v); });
      // 9 windows; a score spoils all dimensions of its head, a value one dimension of all queries.
      ASSERT_EQ(nans, 9 * (in_score ? shape.head_dim : separate ? shape.queries : 1));
      for (const Implementation* implementation : simd_implementations()) {
        SCOPED_TRACE(implementation->name);
        expect_near(run_implementation(*implementation, problem), expected, kTolerance);
      }
    }
}

// A window that holds nothing but NaN is not an empty one.
TEST(WindowAttentionStability, OnlyNaN) {
  Problem problem({.height = 2, .width = 3, .heads = 9, .kernel_h = 1, .kernel_w = 1}, {});
  std::fill(problem.scores.begin(), problem.scores.end(), kNaN);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(implementation->name);
    for (const double z : run_implementation(*implementation, problem).out) {
      EXPECT_TRUE(std::isnan(z));
    }
  }
}

}  // namespace
}  // namespace qna::kernels::testing
