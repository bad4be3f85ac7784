#include "qna/viz/box.h"

#include <gtest/gtest.h>

#include "qna/viz/draw.h"
#include "qna/viz/pixel_testonly.h"

namespace qna::viz {
namespace {

void draw_box(image::Image& image, Point top_left, Point bottom_right, Color color,
              const std::string& label = "") {
  const LabelledOutline box{top_left, bottom_right, color, label};
  draw_boxes(image, {&box, 1});
}

int64_t count_of(const image::Image& image, Color color) {
  int64_t count = 0;
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x) count += pixel(image, y, x) == color;
  return count;
}

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

TEST(Box, LabelsDoNotCoverEachOther) {
  const Color colors[] = {{0, 0, 200}, {0, 90, 0}, {120, 0, 0}};
  image::Image image = blank(80, 120, {200, 200, 200});
  // Boxes at one place: each label would stand on the others.
  std::vector<LabelledOutline> boxes;
  for (const Color color : colors) boxes.push_back({{20, 30}, {60, 60}, color, "name"});
  draw_boxes(image, boxes);
  for (const Color color : colors) {
    // Its ground, 28 x 14, without the letters.
    EXPECT_GT(count_of(image, color), 200) << int{color[0]} << ", " << int{color[1]};
  }
  EXPECT_EQ(pixel(image, 17, 21), colors[2]);  // the last has its own place, above the box
  // One at the right border is moved to where it can be read.
  image = blank(60, 60, {200, 200, 200});
  draw_box(image, {50, 30}, {59, 50}, colors[0], "long name");
  EXPECT_EQ(pixel(image, 17, 3), colors[0]);
}

TEST(Box, CategoriesHaveColours) {
  EXPECT_NE(category_color(0), category_color(1));
  EXPECT_EQ(category_color(3), category_color(15));
  EXPECT_EQ(category_color(-1), category_color(11));
}

}  // namespace
}  // namespace qna::viz
