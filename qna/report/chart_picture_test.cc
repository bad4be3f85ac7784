#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "qna/report/chart.h"
#include "tests/support/hostile.h"

namespace qna::report {
namespace {

// Pixels of this colour; at the edge of a line it is mixed with white.
int64_t count(const image::Image& image, std::array<int, 3> color) {
  int64_t found = 0;
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    int difference = 0;
    for (size_t c = 0; c < 3; ++c) difference += std::abs(image.pixels[i + c] - color[c]);
    found += difference < 200;
  }
  return found;
}

constexpr std::array<int, 3> kBlue = {0x00, 0x72, 0xb2}, kOrange = {0xd5, 0x5e, 0x00};

TEST(ChartPicture, HasTheSizeOfTheChart) {
  const image::Image image = to_picture({.width = 600, .plot_height = 300});
  EXPECT_EQ(image.width, 600);
  EXPECT_EQ(image.height, 300 + 10 + 26);
}

TEST(ChartPicture, StrongCurvesAreThickAndAbove) {
  Chart chart{.curves = {{"a", {0, 1}, {5, 5}}, {"b", {0, 1}, {5, 5}}}};
  const int64_t plain = count(to_picture(chart), kOrange);  // the second is drawn over the first
  chart.curves[0].strong = true;
  const image::Image image = to_picture(chart);
  EXPECT_GT(count(image, kBlue), plain);
  EXPECT_LT(count(image, kOrange), plain / 4);  // what is left is in the legend
}

TEST(ChartPicture, DashesAndDots) {
  Chart chart;
  for (int i = 0; i < 8; ++i) chart.curves.push_back({"c", {}, {}});
  chart.curves[0] = {"c", {0, 1}, {1, 1}};
  const int64_t line = count(to_picture(chart), kBlue);
  std::swap(chart.curves[0], chart.curves[7]);
  const int64_t dashed = count(to_picture(chart), kBlue);
  EXPECT_LT(dashed, 0.9 * static_cast<double>(line));
  chart.dots = true;
  EXPECT_GT(count(to_picture(chart), kBlue), dashed);
}

TEST(ChartPicture, OddNumbersAndTextDoNoHarm) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string long_text(3000, 'x');
  const image::Image image = to_picture({.title = long_text + "\xff",
                                         .x_label = long_text,
                                         .y_label = long_text,
                                         .curves = {{long_text, {1, nan, 3}, {1, 2, nan}}, {}},
                                         .x_scale = Scale::kLog,
                                         .y_scale = Scale::kLog});
  EXPECT_GT(count(image, kBlue), 0);
}

TEST(ChartPicture, Mistakes) {
  EXPECT_EQ(testing::complaint_of([] {
              to_picture({.curves = {{"a", {1, 2}, {1}}}});
            }),
            "to_picture: x and y of curve 'a' must be equally long, got 2 and 1");
  EXPECT_EQ(testing::complaint_of([] { to_picture({.width = 10}); }),
            "to_picture: a chart must be from 200 to 4000 wide and its plot from 100 to 4000 high, "
            "got 10 x 216");
}

}  // namespace
}  // namespace qna::report
