#include "qna/report/axis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "qna/report/text_testonly.h"

namespace qna::report {
namespace {

std::vector<std::string> labels(const Axis& axis, int most) {
  std::vector<std::string> list;
  for (const Tick& tick : ticks(axis, most)) list.push_back(tick.label);
  return list;
}
using Labels = std::vector<std::string>;

TEST(Axis, Labels) {
  EXPECT_EQ(labels({Scale::kLinear, 0, 1}, 6), (Labels{"0", "0.2", "0.4", "0.6", "0.8", "1.0"}));
  EXPECT_EQ(labels({Scale::kLinear, -1, 1}, 6), (Labels{"-1.0", "-0.5", "0", "0.5", "1.0"}));
  EXPECT_EQ(labels({Scale::kLinear, 88, 93}, 6), (Labels{"88", "89", "90", "91", "92", "93"}));
  EXPECT_EQ(labels({Scale::kLinear, 0, 60000}, 4), (Labels{"0", "20000", "40000", "60000"}));
  EXPECT_EQ(labels({Scale::kLinear, 0, 4e6}, 5), (Labels{"0", "1e6", "2e6", "3e6", "4e6"}));
  EXPECT_EQ(labels({Scale::kLog, 1e-5, 1e-1}, 6),
            (Labels{"1e-5", "0.0001", "0.001", "0.01", "0.1"}));
  EXPECT_EQ(labels({Scale::kLog, 1, 10}, 6), (Labels{"1", "2", "5", "10"}));
}

TEST(Axis, Place) {
  const Axis linear{Scale::kLinear, -2, 6};
  EXPECT_DOUBLE_EQ(linear.place(-2), 0);
  EXPECT_DOUBLE_EQ(linear.place(0), 0.25);
  EXPECT_DOUBLE_EQ(linear.place(6), 1);
  const Axis log{Scale::kLog, 0.01, 100};
  EXPECT_NEAR(log.place(0.01), 0, 1e-12);
  EXPECT_NEAR(log.place(1), 0.5, 1e-12);
  EXPECT_NEAR(log.place(100), 1, 1e-12);
}

TEST(Axis, FitsWhatCanBeShown) {
  const Axis plain = fit_axis(std::vector{kNan, 5.0, kInfinity, 6.0, -kInfinity}, Scale::kLinear);
  EXPECT_LT(plain.low, 5);
  EXPECT_GT(plain.low, 4.9);
  EXPECT_GT(plain.high, 6);
  EXPECT_LT(plain.high, 6.1);
  EXPECT_EQ(fit_axis(std::vector{1.0, 9.0}, Scale::kLinear).low, 0);    // near enough to zero
  EXPECT_LT(fit_axis(std::vector{-1.0, 9.0}, Scale::kLinear).low, -1);  // negative ones count
  const Axis log = fit_axis(std::vector{-5.0, 0.0, 0.1, 10.0}, Scale::kLog);
  EXPECT_GT(log.low, 0.05);
  EXPECT_LT(log.high, 20);
  const Axis none = fit_axis(std::vector{kNan, 0.0}, Scale::kLog);
  EXPECT_EQ(none.low, 1);
  EXPECT_EQ(none.high, 10);
}

// Whatever the numbers: places are in [0, 1] and finite, ticks lie on the axis, increase, have
// different labels, and there are at most as many as wanted, at least one.
void expect_sane(const std::vector<double>& values, Scale scale) {
  const Axis axis = fit_axis(values, scale);
  ASSERT_LT(axis.low, axis.high);
  ASSERT_TRUE(std::isfinite(axis.low) && std::isfinite(axis.high));
  for (const double value : values) {
    if (!can_show(scale, value)) continue;
    ASSERT_GE(axis.place(value), 0) << value;
    ASSERT_LE(axis.place(value), 1) << value;
  }
  for (int most = 3; most <= 8; ++most) {
    const std::vector<Tick> all = ticks(axis, most);
    ASSERT_GE(all.size(), 1u) << axis.low << " " << axis.high << " " << most;
    ASSERT_LE(all.size(), static_cast<size_t>(most)) << axis.low << " " << axis.high;
    std::set<std::string> seen;
    double last = -kInfinity;
    for (const Tick& tick : all) {
      ASSERT_GT(tick.value, last);
      last = tick.value;
      ASSERT_GE(axis.place(tick.value), -1e-6);
      ASSERT_LE(axis.place(tick.value), 1 + 1e-6);
      ASSERT_TRUE(seen.insert(tick.label).second) << tick.label;
      // A label is its number.
      ASSERT_NEAR(std::stod(tick.label), tick.value, 1e-6 * (axis.high - axis.low));
    }
  }
}

TEST(Axis, OddRanges) {
  for (const Scale scale : {Scale::kLinear, Scale::kLog}) {
    expect_sane({}, scale);
    expect_sane({0}, scale);
    expect_sane({-3}, scale);
    expect_sane({1e-310, 5e-324}, scale);
    expect_sane({1e308, -1e308}, scale);
    expect_sane({1.7e308}, scale);
    expect_sane({1e-300, 1e300}, scale);
    expect_sane({1e9, std::nextafter(1e9, 2e9)}, scale);
    expect_sane({1e9, 1e9 + 10}, scale);
    expect_sane({-1e-7, 1e-7}, scale);
  }
}

TEST(Axis, RandomRanges) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> exponent(-12, 12), sign(-1, 1);
  for (int round = 0; round < 3000; ++round) {
    const double a = std::copysign(std::pow(10, exponent(random)), sign(random));
    const double b = round % 2 == 0 ? a * (1 + 0.2 * sign(random))
                                    : std::copysign(std::pow(10, exponent(random)), sign(random));
    expect_sane({a, b}, Scale::kLinear);
    expect_sane({std::abs(a), std::abs(b)}, Scale::kLog);
  }
}

TEST(ShortNumber, ForPeople) {
  EXPECT_EQ(short_number(0.5), "0.5");
  EXPECT_EQ(short_number(1e-7), "1e-7");
  EXPECT_EQ(short_number(1234567), "1.23457e6");
  EXPECT_EQ(short_number(-2e100), "-2e100");
  EXPECT_EQ(short_number(12000), "12000");
}

}  // namespace
}  // namespace qna::report
