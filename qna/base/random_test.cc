#include "qna/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "qna/base/error.h"

namespace qna {
namespace {

// Mean and variance of `count` numbers.
struct Moments {
  template <typename Draw>
  Moments(int64_t count, Draw&& draw) {
    double sum = 0;
    double squares = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double value = draw();
      sum += value;
      squares += value * value;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    mean = sum / static_cast<double>(count);
    variance = squares / static_cast<double>(count) - mean * mean;
  }
  double mean;
  double variance;
  double low = INFINITY;
  double high = -INFINITY;
};

TEST(SplitMix, GivesItsPublishedNumbers) {
  uint64_t state = 1234567;
  for (const uint64_t expected : {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                  4593380528125082431u, 16408922859458223821u}) {
    EXPECT_EQ(split_mix(state), expected);
  }
  state = 0;
  EXPECT_EQ(split_mix(state), 0xe220a8397b1dcdafu);
}

TEST(Random, StartsWhereTheHeaderSays) {
  uint64_t state = 11;
  state = split_mix(state) + 22;
  state = split_mix(state) + 33;
  state = split_mix(state) + 44;
  state = split_mix(state);
  Random random(11, 22, 33, 44);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(random.next(), split_mix(state));
}

TEST(Random, EveryArgumentChangesTheStream) {
  std::set<uint64_t> seen;
  size_t count = 0;
  for (const uint64_t seed : {0ull, 1ull, 2ull, ~0ull})
    for (const uint64_t epoch : {0ull, 1ull, 2ull, 1ull << 40})
      for (const uint64_t index : {0ull, 1ull, 2ull, 1000000ull})
        for (const uint64_t purpose : {0ull, 1ull, 2ull, 3ull}) {
          Random random(seed, epoch, index, purpose);
          for (int i = 0; i < 8; ++i, ++count) seen.insert(random.next());
        }
  EXPECT_EQ(seen.size(), count);  // no number of 64 bits twice
}

TEST(Random, NeighboursAreIndependent) {
  // The first numbers of neighbouring indices: as good as those of one stream.
  double product = 0;
  constexpr int kCount = 20000;
  for (uint64_t i = 0; i < kCount; ++i) {
    product += (Random(5, 0, i).uniform() - 0.5) * (Random(5, 0, i + 1).uniform() - 0.5);
  }
  // A product has deviation 1/12; their mean is within 4 deviations of 0.
  EXPECT_LT(std::abs(product / kCount), 4. / 12 / std::sqrt(kCount));
}

TEST(Random, IsAFunctionOfItsArguments) {
  Random a(1, 2, 3, kMix);
  Random b(1, 2, 3, kMix);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(a.beta(0.8), b.beta(0.8));
    EXPECT_EQ(a.normal(), b.normal());
    EXPECT_EQ(a.below(17), b.below(17));
  }
}

// Bounds are 5 deviations of the estimate or more.
constexpr int64_t kMany = 200000;

TEST(Random, Uniform) {
  Random random(1);
  const Moments unit(kMany, [&] { return random.uniform(); });
  EXPECT_GE(unit.low, 0);
  EXPECT_LT(unit.high, 1);
  EXPECT_NEAR(unit.mean, 0.5, 0.004);
  EXPECT_NEAR(unit.variance, 1. / 12, 0.001);
  const Moments range(kMany, [&] { return random.uniform(-3, 5); });
  EXPECT_GE(range.low, -3);
  EXPECT_LT(range.high, 5);
  EXPECT_NEAR(range.mean, 1, 0.03);
  EXPECT_EQ(random.uniform(2, 2), 2);
  // Where the next number after `low` is `high`, rounding must not give `high`.
  const double high = std::nextafter(1.0, 2.0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(random.uniform(1, high), 1);
}

TEST(Random, BelowIsEven) {
  Random random(2);
  for (const int64_t count : {1, 2, 3, 7, 100}) {
    std::vector<int64_t> seen(count);
    for (int64_t i = 0; i < kMany; ++i) {
      const int64_t value = random.below(count);
      ASSERT_GE(value, 0);
      ASSERT_LT(value, count);
      ++seen[value];
    }
    const double expected = static_cast<double>(kMany) / static_cast<double>(count);
    for (const int64_t n : seen) {
      EXPECT_NEAR(static_cast<double>(n), expected, 5 * std::sqrt(expected));
    }
  }
  // Two thirds of 2^63: a plain remainder would give the lower half twice as often.
  const int64_t huge = INT64_MAX / 3 * 2;
  int64_t low = 0;
  for (int64_t i = 0; i < kMany; ++i) low += random.below(huge) < huge / 2;
  EXPECT_NEAR(static_cast<double>(low), kMany / 2., 5 * std::sqrt(kMany / 4.));
  EXPECT_THROW(random.below(0), Error);
  EXPECT_THROW(random.below(-1), Error);
}

TEST(Random, Chance) {
  Random random(3);
  int64_t yes = 0;
  for (int64_t i = 0; i < kMany; ++i) {
    EXPECT_FALSE(random.chance(0));
    EXPECT_TRUE(random.chance(1));
    yes += random.chance(0.3);
  }
  EXPECT_NEAR(static_cast<double>(yes) / kMany, 0.3, 0.006);
}

TEST(Random, Normal) {
  Random random(4);
  const Moments one(kMany, [&] { return random.normal(); });
  EXPECT_NEAR(one.mean, 0, 0.012);
  EXPECT_NEAR(one.variance, 1, 0.017);
  std::vector<float> values(kMany + 1);
  random.normals(values.data(), kMany - 1);  // an odd count: the rest is not touched
  EXPECT_EQ(values[kMany - 1], 0);
  size_t i = 0;
  const Moments many(kMany - 1, [&] { return values[i++]; });
  EXPECT_NEAR(many.mean, 0, 0.012);
  EXPECT_NEAR(many.variance, 1, 0.017);
  int64_t beyond = 0;
  double products = 0;  // of the two out of one pair
  for (int64_t k = 0; k + 1 < kMany; k += 2) {
    beyond += std::abs(values[k]) > 2;
    products += values[k] * values[k + 1];
  }
  EXPECT_NEAR(static_cast<double>(beyond) / (kMany / 2.), 0.0455, 0.0035);
  EXPECT_NEAR(products / (kMany / 2.), 0, 0.016);
}

TEST(Random, Beta) {
  Random random(5);
  for (const double alpha : {1e-4, 0.2, 0.8, 1.0, 2.0, 50.0}) {
    const Moments beta(kMany, [&] { return random.beta(alpha); });
    EXPECT_GE(beta.low, 0);
    EXPECT_LE(beta.high, 1);
    EXPECT_NEAR(beta.mean, 0.5, 0.006) << alpha;
    EXPECT_NEAR(beta.variance, 1 / (4 * (2 * alpha + 1)), 0.0025) << alpha;
  }
  // Beta(1, 1) is uniform.
  int64_t tenth = 0;
  for (int64_t i = 0; i < kMany; ++i) tenth += random.beta(1) < 0.1;
  EXPECT_NEAR(static_cast<double>(tenth) / kMany, 0.1, 0.0035);
  for (const double alpha : {0., -1., HUGE_VAL, std::nan("")}) {
    EXPECT_THROW(random.beta(alpha), Error);
  }
}

}  // namespace
}  // namespace qna
