#include "qna/viz/palette.h"

#include <gtest/gtest.h>

#include <limits>

namespace qna::viz {
namespace {

TEST(Palette, EndsAreTheOriginals) {
  EXPECT_EQ(color_of(Palette::kViridis, 0), (Color{68, 1, 84}));
  EXPECT_EQ(color_of(Palette::kViridis, 1), (Color{253, 231, 37}));
  EXPECT_EQ(color_of(Palette::kInferno, 0), (Color{0, 0, 4}));
  EXPECT_EQ(color_of(Palette::kInferno, 1), (Color{252, 255, 164}));
}

TEST(Palette, BeyondTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Palette palette : {Palette::kViridis, Palette::kInferno}) {
    for (const float low : {-1.0f, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      EXPECT_EQ(color_of(palette, low), color_of(palette, 0));
    }
    for (const float high : {2.0f, infinity}) {
      EXPECT_EQ(color_of(palette, high), color_of(palette, 1));
    }
  }
}

TEST(Palette, LightnessGrows) {
  for (const Palette palette : {Palette::kViridis, Palette::kInferno}) {
    double before = -1;
    for (int i = 0; i <= 64; ++i) {
      const Color c = color_of(palette, static_cast<float>(i) / 64);
      const double luma = 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2];
      EXPECT_GT(luma, before) << i;
      before = luma;
    }
  }
}

}  // namespace
}  // namespace qna::viz
