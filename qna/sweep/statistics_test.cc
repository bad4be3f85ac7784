#include "qna/sweep/statistics.h"

#include <gtest/gtest.h>

namespace qna::sweep {
namespace {

Statistics of(std::vector<double> values) { return statistics(values); }

TEST(SweepStatistics, MeanAndDeviation) {
  EXPECT_EQ(of({}).count, 0);
  EXPECT_TRUE(std::isnan(of({}).mean));
  EXPECT_EQ(of({3}).mean, 3);
  EXPECT_TRUE(std::isnan(of({3}).deviation));
  EXPECT_DOUBLE_EQ(of({1, 2, 3, 6}).mean, 3);
  EXPECT_DOUBLE_EQ(of({1, 2, 3, 6}).deviation, std::sqrt(14.0 / 3));  // n - 1
}

TEST(SweepStatistics, ComparesByChanceAndSpread) {
  // Two rows of three with deviation 1: t of 4 degrees is 2.776, so the limit is
  // 2.776 * sqrt(2 / 3) = 2.267.
  const Statistics a = of({9, 10, 11});
  EXPECT_EQ(compare(a, of({11.2, 12.2, 13.2})), Comparison::kSame);
  EXPECT_EQ(compare(a, of({11.3, 12.3, 13.3})), Comparison::kLower);
  EXPECT_EQ(compare(of({11.3, 12.3, 13.3}), a), Comparison::kHigher);
  // Of many runs chance alone would allow less than the spread.
  Statistics many{.count = 100, .mean = 10, .deviation = 1};
  Statistics other = many;
  other.mean = 10.9;
  EXPECT_EQ(compare(many, other), Comparison::kSame);
  other.mean = 11.1;
  EXPECT_EQ(compare(many, other), Comparison::kLower);
  // Spreads that differ: t of 2 degrees is 4.303, and 4.303 * sqrt(1 / 3) = 2.484.
  const Statistics steady{.count = 3, .mean = 12.4, .deviation = 0};
  EXPECT_EQ(compare(a, steady), Comparison::kSame);
  EXPECT_EQ(compare(a, {.count = 3, .mean = 12.6, .deviation = 0}), Comparison::kLower);
  EXPECT_EQ(compare(steady, steady), Comparison::kSame);
  EXPECT_EQ(compare(steady, {.count = 3, .mean = 12.5, .deviation = 0}), Comparison::kLower);
  EXPECT_EQ(compare(a, of({20, 30})), Comparison::kTooFew);
}

TEST(SweepStatistics, SaysTheDifference) {
  const Statistics a = of({9, 10, 11});
  EXPECT_EQ(difference_text(of({19, 20, 21}), a), "+10.00");
  EXPECT_EQ(difference_text(of({8.5, 9.5, 10.5}), a), "-0.50, no difference");
  EXPECT_EQ(difference_text(of({8.5}), a), "-1.50, too few seeds");
  EXPECT_EQ(difference_text(of({}), a), "");
}

TEST(SweepStatistics, Judges) {
  const Statistics low = of({9, 10, 11}), high = of({19, 20, 21});
  const Claim better{.text = "t", .better = "a", .than = "b"};
  const Claim lower{.text = "t", .better = "a", .than = "b", .lower_is_better = true};
  const Claim same{.text = "t", .better = "a", .than = "b", .same = true};
  EXPECT_EQ(judge(better, high, low).word, "confirmed");
  EXPECT_EQ(judge(better, low, high).word, "refuted");
  EXPECT_EQ(judge(better, low, low).word, "no difference");
  EXPECT_EQ(judge(lower, high, low).word, "refuted");
  EXPECT_EQ(judge(lower, low, high).word, "confirmed");
  EXPECT_EQ(judge(same, low, low).word, "confirmed");
  EXPECT_EQ(judge(same, low, high).word, "refuted");
  const Claim no_worse{.text = "t", .better = "a", .than = "b", .no_worse = true};
  EXPECT_EQ(judge(no_worse, low, low).word, "confirmed");
  EXPECT_EQ(judge(no_worse, high, low).word, "confirmed");
  EXPECT_EQ(judge(no_worse, low, high).word, "refuted");
  EXPECT_EQ(judge(better, of({0.501, 0.502, 0.503}), of({0.401, 0.402, 0.403})).why,
            "0.5020 \u00b1 0.0010 beside 0.4020 \u00b1 0.0010");
  EXPECT_EQ(judge(better, of({1, 2}), low).word, "open");
  EXPECT_EQ(judge(better, of({1, 2}), low).why, "2 and 3 runs; a verdict needs 3 of each");
}

}  // namespace
}  // namespace qna::sweep
