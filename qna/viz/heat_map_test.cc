#include "qna/viz/heat_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "qna/base/error.h"

namespace qna::viz {
namespace {

// values[y, x] = 10 y + x
HeatMap ramp(int64_t height, int64_t width) {
  HeatMap map = make_heat_map(height, width);
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) map.at(y, x) = static_cast<float>(10 * y + x);
  return map;
}

TEST(HeatMap, NearestRepeatsNumbers) {
  const HeatMap map = ramp(2, 3);
  const HeatMap large = resize(map, 6, 6, Scaling::kNearest);
  for (int64_t y = 0; y < 6; ++y)
    for (int64_t x = 0; x < 6; ++x) EXPECT_EQ(large.at(y, x), map.at(y / 3, x / 2));
}

TEST(HeatMap, SameSizeIsTheSameMap) {
  const HeatMap map = ramp(4, 5);
  for (const Scaling scaling : {Scaling::kNearest, Scaling::kBicubic}) {
    EXPECT_EQ(resize(map, 4, 5, scaling).values, map.values);
  }
}

TEST(HeatMap, BicubicKeepsConstants) {
  HeatMap map = make_heat_map(3, 4);
  for (float& value : map.values) value = 0.7f;
  for (const int64_t side : {1, 2, 3, 5, 31}) {
    for (const float value : resize(map, side, 2 * side, Scaling::kBicubic).values) {
      EXPECT_NEAR(value, 0.7f, 1e-6f);
    }
  }
}

TEST(HeatMap, BicubicKeepsStraightLinesAwayFromTheEdges) {
  const HeatMap large = resize(ramp(8, 8), 32, 32, Scaling::kBicubic);
  for (int64_t y = 8; y < 24; ++y)
    for (int64_t x = 8; x < 24; ++x) {
      const double row = (y + 0.5) / 4 - 0.5, column = (x + 0.5) / 4 - 0.5;
      EXPECT_NEAR(large.at(y, x), 10 * row + column, 1e-4);
    }
}

TEST(HeatMap, ShrinkingSkipsNothing) {
  HeatMap map = make_heat_map(1, 64);
  map.at(0, 33) = 64;  // one number of many still counts
  double sum = 0;
  for (const float value : resize(map, 1, 4, Scaling::kBicubic).values) sum += value;
  EXPECT_NEAR(sum, 4, 0.1);
}

TEST(HeatMap, ShowsAPart) {
  const HeatMap map = ramp(4, 4);
  // The first 2 x 3 of the map, then half a row more.
  const HeatMap part = resize(map, 2, 3, Scaling::kNearest, Extent{2, 3});
  EXPECT_EQ(part.values, (std::vector<float>{0, 1, 2, 10, 11, 12}));
  const HeatMap fraction = resize(map, 5, 1, Scaling::kNearest, Extent{2.5, 1});
  EXPECT_EQ(fraction.values, (std::vector<float>{0, 0, 10, 10, 20}));
  EXPECT_THROW(resize(map, 2, 2, Scaling::kNearest, Extent{4.5, 4}), Error);
  EXPECT_THROW(resize(map, 2, 2, Scaling::kNearest, Extent{0, 4}), Error);
}

TEST(HeatMap, WrongSizes) {
  EXPECT_THROW(resize(HeatMap{2, 2, {1, 2, 3}}, 4, 4, Scaling::kNearest), Error);
  EXPECT_THROW(resize(HeatMap{}, 4, 4, Scaling::kNearest), Error);
  EXPECT_THROW(resize(ramp(2, 2), 0, 4, Scaling::kNearest), Error);
}

TEST(HeatMap, Mean) {
  const std::vector<HeatMap> maps = {{1, 2, {1, 2}}, {1, 2, {3, 6}}};
  EXPECT_EQ(mean(maps).values, (std::vector<float>{2, 4}));
  EXPECT_THROW(mean({}), Error);
  EXPECT_THROW(mean(std::vector<HeatMap>{{1, 2, {1, 2}}, {2, 1, {1, 2}}}), Error);
}

TEST(HeatMap, RangeLeavesOutliersOut) {
  HeatMap map = make_heat_map(10, 100);
  for (int64_t i = 0; i < 1000; ++i) map.values[i] = static_cast<float>((i * 7) % 1000);
  map.values[0] = std::numeric_limits<float>::quiet_NaN();  // was the 0
  const Range all = range_of({&map, 1}, 0);
  EXPECT_EQ(all.low, 1);
  EXPECT_EQ(all.high, 999);
  const Range most = range_of({&map, 1}, 0.1);  // 99 of 999 at either end
  EXPECT_EQ(most.low, 100);
  EXPECT_EQ(most.high, 900);
}

TEST(HeatMap, RangeOfNothing) {
  const HeatMap map{1, 1, {std::numeric_limits<float>::infinity()}};
  const Range range = range_of({&map, 1});
  EXPECT_EQ(range.low, 0);
  EXPECT_EQ(range.high, 1);
}

}  // namespace
}  // namespace qna::viz
