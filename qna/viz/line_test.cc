#include "qna/viz/line.h"

#include <gtest/gtest.h>

#include "qna/viz/draw.h"

namespace qna::viz {
namespace {

constexpr Color kWhite = {255, 255, 255}, kBlack = {0, 0, 0};

int grey(const image::Image& image, int64_t y, int64_t x) { return image.row(y)[3 * x]; }

TEST(Line, CoversWhatItShould) {
  image::Image image = blank(9, 20, kWhite);
  const Point points[] = {{3, 4.5}, {17, 4.5}};
  draw_line(image, points, 3, kBlack);
  EXPECT_EQ(grey(image, 4, 10), 0);
  EXPECT_EQ(grey(image, 3, 10), 0);
  EXPECT_EQ(grey(image, 2, 10), 255);  // just beside it
  EXPECT_EQ(grey(image, 4, 0), 255);
}

TEST(Line, EdgesAreSmooth) {
  image::Image image = blank(9, 20, kWhite);
  const Point points[] = {{-5, 4}, {30, 4}};  // between two rows, and out of the image
  draw_line(image, points, 1, kBlack);
  EXPECT_NEAR(grey(image, 3, 10), 128, 1);
  EXPECT_NEAR(grey(image, 4, 0), 128, 1);
}

TEST(Line, PiecesDoNotAddUp) {
  image::Image once = blank(9, 20, kWhite), twice = once;
  const Point straight[] = {{2, 4}, {18, 4}};
  const Point there_and_back[] = {{2, 4}, {18, 4}, {2, 4}};
  draw_line(once, straight, 1, kBlack);
  draw_line(twice, there_and_back, 1, kBlack);
  EXPECT_EQ(once.pixels, twice.pixels);
}

TEST(Line, OutsideIsCutOff) {
  image::Image image = blank(5, 5, kWhite);
  const image::Image before = image;
  const Point outside[] = {{100, -100}};
  draw_line(image, outside, 6, kBlack);
  draw_line(image, {}, 1, kBlack);
  EXPECT_EQ(image.pixels, before.pixels);
}

}  // namespace
}  // namespace qna::viz
