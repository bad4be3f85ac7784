// Scores, biases and maps that break a careless softmax: every finite input has an exact answer,
// and what takes no part must not matter, whatever it holds.
#include <functional>

#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

// A logit u is a float32 of up to 90 where exp(u) still counts, so it is off by 4e-6 at most, and
// its exponential by as much of itself.
constexpr double kTolerance = 3e-5;

using FloatProblem = WindowProblem<float>;
using Spoil = std::function<void(FloatProblem&)>;

// Tiles of 4 windows, borders on all sides, heads that leave lanes empty, and the last query alone.
FloatProblem base_problem(const WindowOptions& options, bool separate = false) {
  WindowShape shape = Map(2, 7, 15, 5, 3, 3).padded();
  shape.separate = separate;
  FloatProblem problem(shape, options);
  problem.tolerance = {.by_scale = kTolerance};
  return problem;
}

// fn(value, pixel, channel) -> the new score.
template <typename Fn>
Spoil each_score(Fn fn) {
  return [fn](FloatProblem& p) {
    for (int64_t n = 0; n < p.pixels(); ++n)
      for (int64_t c = 0; c < p.shape.scores(); ++c) {
        float& score = p.scores[n * p.score_stride + c];
        score = fn(score, n, c);
      }
  };
}

// Runs every implementation, combined and separate, with and without bias and mask, after `spoil`.
// All results must be finite: what is near a finite number is.
void compare(const Spoil& spoil, bool bias_too = true, double tolerance = kTolerance) {
  for (int choice = 0; choice < 8; ++choice) {
    const bool bias = (choice & 2) != 0;
    if (bias && !bias_too) continue;
    FloatProblem problem = base_problem(
        {.bias = bias, .mask = (choice & 4) != 0, .gap = choice % 3}, (choice & 1) != 0);
    problem.tolerance = {.by_scale = tolerance};
    spoil(problem);
    for (const Part& part : compare_all(problem).parts) {
      EXPECT_TRUE(std::all_of(part.cells.begin(), part.cells.end(),
                              [](double v) { return std::isfinite(v); }));
    }
    if (::testing::Test::HasFailure()) return;
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
  for (const float magnitude :
       {20.0f, 50.0f, 60.0f, 80.0f, 83.0f, 87.0f, 88.5f, 95.0f, 104.0f, 200.0f, 1e3f, 1e6f, 1e20f})
    for (const float sign : {-1.0f, 1.0f})
      // All scores there, then every other pixel, then one pixel in five.
      for (const int64_t every : {1, 2, 5}) {
        SCOPED_TRACE(fmt::format("{} every {}", sign * magnitude, every));
        compare(each_score([=](float score, int64_t n, int64_t) {
                  return score + (n % every == 0 ? sign * magnitude : 0.0f);
                }),
                // Above 1e6 a bias of order 1 is lost in score + bias, which is how the reference
                // adds them.
                magnitude <= 1e6f);
        if (HasFailure()) return;
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
  FloatProblem problem = base_problem({});
  std::fill(problem.scores.begin(), problem.scores.end(), 0.0f);
  const Results expected = by_reference(problem);
  for (const float score : {-3e38f, -1e10f, 1e10f, 3e38f}) {
    SCOPED_TRACE(score);
    std::fill(problem.scores.begin(), problem.scores.end(), score);
    for_each_simd([&] { expect_near(problem.run(), expected); });
  }
}

TEST(WindowAttentionStability, Denormals) {
  compare(each_score([](float score, int64_t, int64_t) { return score * 1e-40f; }));
  // Denormal values: the answer is as small, so it is measured by its own size.
  FloatProblem problem = base_problem({.gap = 1});
  for (float& value : problem.values) value *= 1e-39f;
  const std::vector<double> expected = by_reference(problem)["out"];
  ASSERT_GT(largest(expected), 0);
  for_each_simd([&] {
    // 27 products, each rounded to a multiple of 1.4e-45.
    const Tolerance tolerance{.absolute = 27 * 1.4e-45, .relative = 1e-5};
    EXPECT_TRUE(near(problem.run()["out"], expected, tolerance));
  });
}

// Biases as far apart as scores; the fast way's table of exp(bias) cannot hold them. Score and bias
// each are taken less a maximum and then added: numbers of size `spread`, which may cancel, are
// rounded twice, to 2^-24 of it.
TEST(WindowAttentionStability, BiasesFarApart) {
  for (const float spread : {5.0f, 15.0f, 18.0f, 40.0f, 90.0f, 500.0f, 1e4f}) {
    SCOPED_TRACE(spread);
    const double tolerance = kTolerance + 2 * spread * 0x1p-24;
    // At a border, all taps that are left may be far below one that is not.
    const Spoil apart = [=](FloatProblem& p) {
      for (size_t i = 0; i < p.bias.size(); ++i) p.bias[i] += i % 4 == 0 ? spread : 0.0f;
    };
    compare(apart, true, tolerance);
    const Spoil against_scores = [=](FloatProblem& p) {
      for (size_t i = 0; i < p.bias.size(); ++i) p.bias[i] -= i % 3 == 0 ? spread : 0.0f;
      each_score(
          [=](float score, int64_t n, int64_t) { return score + (n % 4 == 0 ? spread : 0.0f); })(p);
    };
    compare(against_scores, true, tolerance);
    const Spoil all_alike = [=](FloatProblem& p) {
      for (float& bias : p.bias) bias += 100 * spread;
    };
    compare(all_alike);
    if (HasFailure()) return;
  }
}

TEST(WindowAttentionStability, BiasOfMinusInfinity) {
  compare([](FloatProblem& p) {
    for (size_t i = 0; i < p.bias.size(); ++i) {
      if (i % 3 == 0) p.bias[i] = -kInfinity;
    }
  });
  // A query and head that no tap is left of, beside others that have all.
  compare([](FloatProblem& p) {
    for (size_t i = 0; i < p.bias.size(); ++i) {
      if (i % p.shape.scores() == 7) p.bias[i] = -kInfinity;
    }
  });
  // Only the upper left tap: border windows have none.
  compare([](FloatProblem& p) {
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

TEST(WindowAttentionStability, AllMaskedGivesZero) {
  for (const bool separate : {false, true}) {
    FloatProblem problem = base_problem({.mask = true}, separate);
    const WindowShape& shape = problem.shape;
    // The whole second image, and in the first a block that some windows lie within.
    for (int64_t n = 0; n < problem.pixels(); ++n) problem.mask[n] = n < 105 && n % 15 >= 6;
    std::fill(problem.scores.begin(), problem.scores.end(), 1.0f);
    for_each_implementation([&] {
      const Results actual = problem.run();
      for (size_t i = 0; i < actual["out"].size(); ++i) {
        const int64_t window = static_cast<int64_t>(i) / shape.features() / shape.outputs();
        const bool empty = window >= 105 || window % 15 < 5;
        ASSERT_EQ(actual["out"][i] == 0, empty) << window;
      }
      for (size_t i = 0; i < actual["grad_values"].size(); ++i) {
        const int64_t pixel = static_cast<int64_t>(i) / shape.features();
        ASSERT_EQ(actual["grad_values"][i] == 0, problem.mask[pixel] == 0) << pixel;
      }
      for (size_t i = 0; i < actual["grad_scores"].size(); ++i) {
        const int64_t pixel = static_cast<int64_t>(i) / shape.scores();
        if (problem.mask[pixel] == 0) {
          ASSERT_EQ(actual["grad_scores"][i], 0);
        }
      }
    });
  }
}

// A NaN that takes part shows in exactly the windows, queries and heads that see it.
TEST(WindowAttentionStability, NaNStaysWhereItIs) {
  for (const bool separate : {false, true})
    for (const bool in_score : {true, false}) {
      FloatProblem problem = base_problem({}, separate);
      const int64_t row = 3, column = 8, head = 2, query = 1;
      const int64_t pixel = row * problem.shape.width + column;
      if (in_score) {
        problem.scores[problem.score_index(pixel, query, head)] = kNan;
      } else {
        problem.values[problem.value_index(pixel, head, 1)] = kNan;
      }
      const Results expected = compare_all(problem);
      // 9 windows; a score spoils all dimensions of its head, a value one dimension of all queries.
      EXPECT_EQ(count_nan(expected["out"]), 9 * (in_score   ? problem.shape.head_dim
                                                 : separate ? problem.shape.queries
                                                            : 1));
    }
}

// A window that holds nothing but NaN is not an empty one.
TEST(WindowAttentionStability, OnlyNaN) {
  FloatProblem problem(Map(1, 2, 3, 9).kernel(1, 1), {});
  std::fill(problem.scores.begin(), problem.scores.end(), kNan);
  for_each_simd([&] {
    const std::vector<double> out = problem.run()["out"];
    EXPECT_EQ(count_nan(out), static_cast<int64_t>(out.size()));
  });
}

// The authors' exp overflows half precision at 11: not here.
template <typename T>
class HalfPrecision : public ::testing::Test {};
using StorageTypes = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(HalfPrecision, StorageTypes);

TYPED_TEST(HalfPrecision, LargeScores) {
  for (const float scale : {10.0f, 100.0f, 5e3f}) {  // float16 ends at 65504
    SCOPED_TRACE(scale);
    WindowProblem<TypeParam> problem(Map(1, 6, 11, 5, 3, 3).padded(), {.bias = false});
    for (TypeParam& score : problem.scores) {
      score = from_float<TypeParam>(to_float(score) * scale);
    }
    compare_all(problem);
  }
}

}  // namespace
}  // namespace qna::kernels::testing
