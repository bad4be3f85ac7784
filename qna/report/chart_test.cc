// Structure and places; tests/report_test.py parses the SVG with an XML parser.
#include "qna/report/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

#include "qna/base/error.h"
#include "qna/report/text_testonly.h"
#include "tests/support/hostile.h"

namespace qna::report {
namespace {

// All pairs of numbers in the path of the first element with this class.
std::vector<std::pair<double, double>> path_of(const std::string& svg, const std::string& kind) {
  std::vector<std::pair<double, double>> points;
  // By hand: std::regex goes down one call per letter, and a path has many.
  const size_t element = svg.find("<path class=\"" + kind + "\"");
  if (element == std::string::npos) return points;
  const std::string before = " d=\"";
  const size_t begin = svg.find(before, element) + before.size();
  const std::string path = svg.substr(begin, svg.find('"', begin) - begin);
  const std::regex pair("[ML](-?[0-9.]+) (-?[0-9.]+)");
  for (std::sregex_iterator it(path.begin(), path.end(), pair), end; it != end; ++it) {
    points.emplace_back(std::stod((*it)[1]), std::stod((*it)[2]));
  }
  return points;
}

TEST(Chart, PointsKeepTheirProportions) {
  const std::string svg = to_svg({.curves = {{"a", {0, 1, 2, 4}, {10, 20, 30, 10}}}});
  const auto points = path_of(svg, "curve");
  ASSERT_EQ(points.size(), 4u);
  EXPECT_NEAR(points[1].first - points[0].first, points[2].first - points[1].first, 0.15);
  EXPECT_NEAR(points[3].first - points[2].first, 2 * (points[1].first - points[0].first), 0.25);
  EXPECT_NEAR(points[0].second - points[1].second, points[1].second - points[2].second, 0.15);
  EXPECT_GT(points[0].second, points[1].second);  // larger is higher, and y grows downwards
  EXPECT_EQ(points[3].second, points[0].second);
}

TEST(Chart, LogAxis) {
  const std::string svg =
      to_svg({.curves = {{"a", {0, 1, 2}, {0.01, 1, 100}}}, .y_scale = Scale::kLog});
  const auto points = path_of(svg, "curve");
  ASSERT_EQ(points.size(), 3u);
  EXPECT_NEAR(points[0].second - points[1].second, points[1].second - points[2].second, 0.15);
}

TEST(Chart, LogAxisAcrossWithNamedTicks) {
  const std::string svg =
      to_svg({.curves = {{"a", {1024, 4096, 16384}, {1, 2, 3}}},
              .x_scale = Scale::kLog,
              .x_ticks = {{1024, "32 x 32"}, {16384, "128 x 128"}, {0, "none"}}});
  const auto points = path_of(svg, "curve");
  ASSERT_EQ(points.size(), 3u);
  EXPECT_NEAR(points[1].first - points[0].first, points[2].first - points[1].first, 0.15);
  EXPECT_NE(svg.find(">32 x 32<"), std::string::npos);
  EXPECT_NE(svg.find(">128 x 128<"), std::string::npos);
  EXPECT_EQ(svg.find(">none<"), std::string::npos);  // not on the axis
  EXPECT_EQ(svg.find(">5000<"), std::string::npos);  // instead of round numbers
}

TEST(Chart, StrongCurvesComeLast) {
  const std::string svg = to_svg({.curves = {{"a", {0, 1}, {1, 1}, true}, {"b", {0, 1}, {2, 2}}}});
  EXPECT_EQ(count(svg, "<path class=\"curve strong\" stroke=\"var(--c0)\""), 2);
  EXPECT_GT(svg.rfind("<path class=\"curve strong\""), svg.rfind("<path class=\"curve\""));
}

TEST(Chart, DotsOnEveryPoint) {
  const Chart chart{.curves = {{"a", {0, 1, 2}, {1, 2, 3}}}, .dots = true};
  EXPECT_EQ(count(to_svg(chart), "class=\"dot\""), 3);
}

TEST(Chart, GapsAndDots) {
  //                              run of two | gap | dot | gap | run of two
  const std::string svg =
      to_svg({.curves = {{"a", {0, 1, 2, 3, 4, 5, 6}, {1, 2, kNan, 3, kInfinity, 4, 5}}}});
  EXPECT_EQ(count(svg, "<path class=\"curve\""), 2);
  EXPECT_EQ(count(svg, "class=\"dot\""), 1);
  EXPECT_EQ(count(svg, "class=\"hit\""), 5);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(Chart, WhatALogAxisCannotShow) {
  const std::string svg =
      to_svg({.curves = {{"a", {1, 2, 3, 4, 5}, {1, 2, 0, -3, 5}}}, .y_scale = Scale::kLog});
  EXPECT_EQ(path_of(svg, "curve").size(), 2u);
  EXPECT_EQ(count(svg, "class=\"dot\""), 1);
}

TEST(Chart, NoData) {
  for (const std::vector<Curve>& curves : {std::vector<Curve>{},
                                           {{"a", {}, {}}},
                                           {{"a", {1, 2}, {kNan, kNan}}},
                                           {{"a", {kNan, kInfinity}, {1, 2}}}}) {
    const std::string svg = to_svg({.curves = curves});
    EXPECT_NE(svg.find(">no data<"), std::string::npos);
    EXPECT_EQ(count(svg, "<circle"), 0);
  }
  EXPECT_EQ(to_svg({.curves = {{"a", {1}, {2}}}}).find("no data"), std::string::npos);
}

TEST(Chart, DenseCurves) {
  Curve curve{"a", {}, {}};
  for (int i = 0; i < 200000; ++i) {
    curve.x.push_back(i);
    curve.y.push_back(i == 123456 ? 100 : i % 2 == 0 ? 10 : 12);
  }
  const std::string svg = to_svg({.curves = {curve}});
  EXPECT_LT(svg.size(), 60000u);
  EXPECT_EQ(count(svg, "class=\"hit\""), 80);
  EXPECT_NE(svg.find("11 (10 to 12)"), std::string::npos);
  // One spike among so many is still seen: the band's highest place is far above the line's.
  double band = 1e9, line = 1e9;
  for (const auto& [x, y] : path_of(svg, "band")) band = std::min(band, y);
  for (const auto& [x, y] : path_of(svg, "curve")) line = std::min(line, y);
  EXPECT_LT(band, line - 100);
}

TEST(Chart, LegendAndColours) {
  Chart chart;
  for (int i = 0; i < 9; ++i) chart.curves.push_back({fmt::format("curve{}", i), {0, 1}, {0, 1}});
  const std::string svg = to_svg(chart);
  for (int i = 0; i < 9; ++i) EXPECT_NE(svg.find(fmt::format(">curve{}<", i)), std::string::npos);
  // Seven colours; the eighth curve is the first colour, dashed, in legend and plot.
  EXPECT_EQ(count(svg, "<path class=\"curve dashed\" stroke=\"var(--c0)\""), 2);
  EXPECT_EQ(count(svg, "<path class=\"curve dashed\""), 4);
  EXPECT_EQ(count(svg, "<path class=\"curve\" stroke=\"var(--c0)\""), 2);
}

TEST(Chart, HoverTellsTheNumbers) {
  const std::string svg = to_svg({.x_label = "epoch", .curves = {{"loss", {3}, {0.25}}}});
  EXPECT_NE(svg.find("<title>loss: 0.25 at epoch 3</title>"), std::string::npos);
}

TEST(Chart, HostileText) {
  const std::string evil = "<script>\"'&\xff";
  const std::string svg = to_svg({.title = evil,
                                  .x_label = evil,
                                  .y_label = evil,
                                  .curves = {{evil, {1}, {1}}, {evil, {}, {}}}});
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_EQ(svg.find("\xff"), std::string::npos);
  // Name for screen readers, title, two in the legend, two axes, two where the pointer rests.
  EXPECT_EQ(count(svg, "&lt;script&gt;&quot;&#39;&amp;\xef\xbf\xbd"), 8);
}

TEST(Chart, LongNamesAreCutBetweenLetters) {
  std::string name;
  for (int i = 0; i < 500; ++i) name += "\xc3\xa4";
  const std::string svg = to_svg({.title = name});
  const size_t end = svg.find("\xe2\x80\xa6</text>");
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(svg.substr(end - 2, 2), "\xc3\xa4");
}

TEST(Chart, Mistakes) {
  EXPECT_EQ(testing::complaint_of([] {
              to_svg({.curves = {{"a", {1, 2}, {1}}}});
            }),
            "to_svg: x and y of curve 'a' must be equally long, got 2 and 1");
}

}  // namespace
}  // namespace qna::report
