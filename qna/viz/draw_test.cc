#include "qna/viz/draw.h"

#include <gtest/gtest.h>

#include <limits>

#include "qna/base/error.h"
#include "qna/viz/pixel_testonly.h"

namespace qna::viz {
namespace {

using image::Image;

TEST(Draw, PaintMapsTheRange) {
  const HeatMap map{1, 4, {-5, 2, 4, std::numeric_limits<float>::quiet_NaN()}};
  const Image image = paint(map, {2, 4}, Palette::kInferno);
  EXPECT_EQ(pixel(image, 0, 0), color_of(Palette::kInferno, 0));
  EXPECT_EQ(pixel(image, 0, 1), color_of(Palette::kInferno, 0));
  EXPECT_EQ(pixel(image, 0, 2), color_of(Palette::kInferno, 1));
  EXPECT_EQ(pixel(image, 0, 3), color_of(Palette::kInferno, 0));
}

TEST(Draw, AConstantMapHasTheMiddleColour) {
  const Image image = paint({1, 1, {3}}, {3, 3}, Palette::kViridis);
  EXPECT_EQ(pixel(image, 0, 0), color_of(Palette::kViridis, 0.5f));
}

TEST(Draw, OverlayMixes) {
  const Image image = blank(2, 3, {200, 200, 200});
  const HeatMap map = make_heat_map(2, 3);
  EXPECT_EQ(pixel(overlay(image, map, {0, 1}, Palette::kViridis, 0), 1, 2), (Color{200, 200, 200}));
  EXPECT_EQ(pixel(overlay(image, map, {0, 1}, Palette::kViridis, 1), 1, 2), (Color{68, 1, 84}));
  EXPECT_EQ(pixel(overlay(image, map, {0, 1}, Palette::kViridis, 0.5), 0, 0),
            (Color{134, 101, 142}));
  EXPECT_THROW(overlay(image, map, {0, 1}, Palette::kViridis, 1.5), Error);
  EXPECT_THROW(overlay(image, make_heat_map(3, 2), {0, 1}, Palette::kViridis, 0.5), Error);
  EXPECT_THROW(overlay(image::make_image(2, 3, 1), map, {0, 1}, Palette::kViridis, 0.5), Error);
}

TEST(Draw, PasteMustLieInside) {
  Image canvas = blank(4, 4, {0, 0, 0});
  paste(canvas, blank(2, 2, {9, 8, 7}), 2, 1);
  EXPECT_EQ(pixel(canvas, 3, 2), (Color{9, 8, 7}));
  EXPECT_EQ(pixel(canvas, 1, 1), (Color{0, 0, 0}));
  EXPECT_THROW(paste(canvas, blank(2, 2, {}), 3, 0), Error);
  EXPECT_THROW(paste(canvas, blank(2, 2, {}), 0, -1), Error);
}

TEST(Draw, MosaicPutsLinesBetweenTiles) {
  // 2 x 2 tiles of 2 x 3, each number its tile's.
  HeatMap map = make_heat_map(4, 6);
  for (int64_t y = 0; y < 4; ++y)
    for (int64_t x = 0; x < 6; ++x) map.at(y, x) = static_cast<float>(2 * (y / 2) + x / 3);
  const Tiles tiles{2, 3, 4};
  const Image image = mosaic(map, tiles, {0, 3}, Palette::kInferno);
  ASSERT_EQ(image.height, 2 * 8 + 1);
  ASSERT_EQ(image.width, 2 * 12 + 1);
  const Color line = pixel(image, 8, 0);
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x) {
      const float value = static_cast<float>(2 * (y > 8) + (x > 12));
      const bool between = y == 8 || x == 12;
      EXPECT_EQ(pixel(image, y, x), between ? line : color_of(Palette::kInferno, value / 3));
    }
  EXPECT_THROW(mosaic(map, {3, 3}, {0, 3}, Palette::kInferno), Error);
  EXPECT_THROW(mosaic(map, {2, 3, 0}, {0, 3}, Palette::kInferno), Error);
}

TEST(Draw, ScaleBar) {
  const Image plain = blank(5, 100, {1, 2, 3});
  const Image image = with_scale_bar(plain, {0.25f, 1234}, Palette::kViridis);
  ASSERT_EQ(image.height, 5 + kScaleBarHeight);
  ASSERT_EQ(image.width, 100);
  EXPECT_EQ(pixel(image, 4, 50), (Color{1, 2, 3}));
  const int64_t middle_of_bar = 5 + 3 + 4;
  EXPECT_EQ(pixel(image, middle_of_bar, 0), color_of(Palette::kViridis, 0.005f));
  EXPECT_EQ(pixel(image, middle_of_bar, 99), color_of(Palette::kViridis, 0.995f));
  const auto ink = [&](int64_t left, int64_t right) {
    int64_t count = 0;
    for (int64_t y = image.height - 13; y < image.height; ++y)
      for (int64_t x = left; x < right; ++x) count += pixel(image, y, x) != Color{255, 255, 255};
    return count;
  };
  EXPECT_GT(ink(0, 24), 20);
  EXPECT_EQ(ink(30, 50), 0);
  EXPECT_GT(ink(50, 100), 20);
}

TEST(Draw, ScaleBarOfAnyWidth) {
  for (const int64_t width : {1, 2, 7, 40}) {
    EXPECT_EQ(with_scale_bar(blank(1, width, {}), {-1e-7f, 1e9f}, Palette::kInferno).width, width);
  }
}

}  // namespace
}  // namespace qna::viz
