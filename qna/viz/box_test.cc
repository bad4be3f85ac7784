#include "qna/viz/box.h"

#include <gtest/gtest.h>

#include "qna/viz/draw.h"
#include "qna/viz/pixel_testonly.h"

namespace qna::viz {
namespace {

TEST(Box, OutlineIsDrawnAndTheInsideStays) {
  image::Image image = blank(40, 60, {10, 20, 30});
  const Color red = {255, 0, 0};
  draw_box(image, {10.5, 5.5}, {50.5, 30.5}, red);
  for (const auto& [y, x] : {std::pair{5, 10}, {5, 30}, {30, 50}, {18, 10}, {18, 50}}) {
    EXPECT_EQ(pixel(image, y, x), red) << y << ", " << x;
  }
  EXPECT_EQ(pixel(image, 18, 30), (Color{10, 20, 30}));
  EXPECT_EQ(pixel(image, 38, 58), (Color{10, 20, 30}));
}

TEST(Box, LabelStandsAboveTheBoxOrInsideIt) {
  const Color blue = {0, 0, 200};
  image::Image image = blank(60, 80, {0, 0, 0});
  draw_box(image, {10, 30}, {70, 50}, blue, "a");
  EXPECT_EQ(pixel(image, 17, 11), blue);
  draw_box(image, {10, 2}, {70, 50}, blue, "a");
  EXPECT_EQ(pixel(image, 4, 11), blue);
}

TEST(Box, MayReachBeyondTheImage) {
  image::Image image = blank(20, 20, {0, 0, 0});
  draw_box(image, {-30, -30}, {500, 17.5}, {9, 9, 9}, "a label that is too long for it");
  EXPECT_EQ(pixel(image, 17, 3), (Color{9, 9, 9}));
  EXPECT_EQ(pixel(image, 19, 3), (Color{0, 0, 0}));
  draw_box(image, {-1e6, -1e6}, {-1e5, -1e5}, {9, 9, 9}, "outside");
}

TEST(Box, CategoriesHaveColours) {
  EXPECT_NE(category_color(0), category_color(1));
  EXPECT_EQ(category_color(3), category_color(15));
  EXPECT_EQ(category_color(-1), category_color(11));
}

}  // namespace
}  // namespace qna::viz
