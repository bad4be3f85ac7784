// The table of docs/augmentation.md.
#include "qna/data/rand_augment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "qna/base/error.h"
#include "qna/data/speckles_testonly.h"
#include "qna/image/enhance.h"
#include "qna/image/tone.h"

namespace qna::data {
namespace {

using image::Filter;
using image::Image;

constexpr image::Color kFill = {124, 116, 104};

TEST(ChangeParameter, OfTheTable) {
  const struct {
    Change change;
    const char* name;
    double at_0, at_5, at_9, at_10;  // upwards
    double negative_9;
  } rows[] = {
      {Change::kAutoContrast, "AutoContrast", 0, 0, 0, 0, 0},
      {Change::kEqualize, "Equalize", 0, 0, 0, 0, 0},
      {Change::kInvert, "Invert", 0, 0, 0, 0, 0},
      {Change::kRotate, "Rotate", 0, 15, 27, 30, -27},
      {Change::kPosterize, "Posterize", 4, 2, 1, 0, 1},
      {Change::kSolarize, "Solarize", 256, 128, 26, 0, 26},
      {Change::kSolarizeAdd, "SolarizeAdd", 0, 55, 99, 110, 99},
      {Change::kColor, "Color", 1, 1.45, 1.81, 1.9, 0.19},
      {Change::kContrast, "Contrast", 1, 1.45, 1.81, 1.9, 0.19},
      {Change::kBrightness, "Brightness", 1, 1.45, 1.81, 1.9, 0.19},
      {Change::kSharpness, "Sharpness", 1, 1.45, 1.81, 1.9, 0.19},
      {Change::kShearX, "ShearX", 0, 0.15, 0.27, 0.3, -0.27},
      {Change::kShearY, "ShearY", 0, 0.15, 0.27, 0.3, -0.27},
      {Change::kTranslateX, "TranslateX", 0, 0.225, 0.405, 0.45, -0.405},
      {Change::kTranslateY, "TranslateY", 0, 0.225, 0.405, 0.45, -0.405},
  };
  static_assert(std::size(rows) == kChanges);
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_STREQ(change_name(row.change), row.name);
    EXPECT_DOUBLE_EQ(change_parameter(row.change, 0, false), row.at_0);
    EXPECT_DOUBLE_EQ(change_parameter(row.change, 5, false), row.at_5);
    EXPECT_DOUBLE_EQ(change_parameter(row.change, 9, false), row.at_9);
    EXPECT_DOUBLE_EQ(change_parameter(row.change, 10, false), row.at_10);
    EXPECT_NEAR(change_parameter(row.change, 9, true), row.negative_9, 1e-12);
    for (const double wrong : {-0.1, 10.1, std::nan("")}) {
      EXPECT_THROW(change_parameter(row.change, wrong, false), Error);
    }
  }
  // Never below 0.1, where nothing of the image is left.
  EXPECT_NEAR(change_parameter(Change::kColor, 10, true), 0.1, 1e-12);
}

TEST(ApplyChange, IsTheChangeOfThatName) {
  using namespace image;
  for (const Filter f : {Filter::kBilinear, Filter::kBicubic})
    for (const int64_t channels : {1, 3})
      for (const auto& [height, width] : {std::pair{1, 1}, {1, 9}, {9, 1}, {20, 31}}) {
        const Image in = speckles(height, width, channels, 20, 200);
        const auto changed = [&](Change change, double parameter) {
          return apply_change(in, change, parameter, f, kFill).pixels;
        };
        EXPECT_EQ(changed(Change::kAutoContrast, 0), autocontrast(in).pixels);
        EXPECT_EQ(changed(Change::kEqualize, 0), equalize(in).pixels);
        EXPECT_EQ(changed(Change::kInvert, 0), invert(in).pixels);
        EXPECT_EQ(changed(Change::kRotate, -20), rotate(in, -20, f, kFill).pixels);
        EXPECT_EQ(changed(Change::kPosterize, 2), posterize(in, 2).pixels);
        EXPECT_EQ(changed(Change::kSolarize, 90), solarize(in, 90).pixels);
        EXPECT_EQ(changed(Change::kSolarizeAdd, 70), solarize_add(in, 70).pixels);
        EXPECT_EQ(changed(Change::kColor, 0.3), saturation(in, 0.3).pixels);
        EXPECT_EQ(changed(Change::kContrast, 0.3), contrast(in, 0.3).pixels);
        EXPECT_EQ(changed(Change::kBrightness, 0.3), brightness(in, 0.3).pixels);
        EXPECT_EQ(changed(Change::kSharpness, 1.3), sharpness(in, 1.3).pixels);
        EXPECT_EQ(changed(Change::kShearX, 0.2), shear_x(in, 0.2, f, kFill).pixels);
        EXPECT_EQ(changed(Change::kShearY, 0.2), shear_y(in, 0.2, f, kFill).pixels);
        EXPECT_EQ(changed(Change::kTranslateX, 0.2), translate_x(in, 0.2, f, kFill).pixels);
        EXPECT_EQ(changed(Change::kTranslateY, 0.2), translate_y(in, 0.2, f, kFill).pixels);
      }
}

TEST(RandAugment, DrawsEveryChangeAndSignEquallyOften) {
  const Image in = speckles(24, 24, 3, 20, 200);
  // At magnitude 9 all changes of this image look different.
  std::map<std::string, double> chances;
  for (int64_t i = 0; i < kChanges; ++i)
    for (const bool negative : {false, true}) {
      const Change change = static_cast<Change>(i);
      const double parameter = change_parameter(change, 9, negative);
      chances[bytes(apply_change(in, change, parameter, Filter::kBicubic, kFill))] += 1. / 30;
    }
  ASSERT_EQ(chances.size(), 24u);  // six have one direction
  std::map<std::string, int> seen;
  constexpr int kDraws = 6000;
  const RandAugment options = {.ops = 1, .magnitude = 9, .std = 0, .probability = 1};
  Random random(1);
  for (int i = 0; i < kDraws; ++i) {
    ++seen[bytes(rand_augment(in, options, Filter::kBicubic, kFill, random))];
  }
  EXPECT_EQ(seen.size(), chances.size());
  for (const auto& [pixels, count] : seen) {
    const auto chance = chances.find(pixels);
    ASSERT_NE(chance, chances.end());
    const double expected = kDraws * chance->second;
    EXPECT_NEAR(count, expected, 5 * std::sqrt(expected));
  }
}

TEST(RandAugment, ProbabilityIsPerChange) {
  const Image in = speckles(8, 8, 3, 20, 200);
  constexpr int kDraws = 4000;
  int unchanged = 0;
  Random random(2);
  for (int i = 0; i < kDraws; ++i) {
    unchanged += rand_augment(in, {}, Filter::kBilinear, kFill, random).pixels == in.pixels;
  }
  // A quarter is left alone; equalize leaves an image of so few pixels alone, too, that is
  // with 1/15: (1 / 2 + 1 / 2 / 15)^2 = 0.284, and some strong changes undo each other.
  EXPECT_NEAR(static_cast<double>(unchanged) / kDraws, 0.284, 0.04);
  for (int i = 0; i < 50; ++i) {
    const RandAugment never = {.probability = 0};
    EXPECT_EQ(rand_augment(in, never, Filter::kBilinear, kFill, random).pixels, in.pixels);
    const RandAugment none = {.ops = 0, .probability = 1};
    EXPECT_EQ(rand_augment(in, none, Filter::kBilinear, kFill, random).pixels, in.pixels);
  }
}

TEST(RandAugment, SkippingDoesNotShiftTheNext) {
  // Of the same numbers, 1 change is the first half of 2.
  const Image in = speckles(8, 8, 3, 20, 200);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random one(seed);
    Random two(seed);
    Image first = rand_augment(in, {.ops = 1}, Filter::kBilinear, kFill, one);
    first = rand_augment(first, {.ops = 1}, Filter::kBilinear, kFill, one);
    EXPECT_EQ(first.pixels, rand_augment(in, {.ops = 2}, Filter::kBilinear, kFill, two).pixels);
    EXPECT_EQ(one.next(), two.next());
  }
}

TEST(RandAugment, EdgesOfSizeAndMagnitude) {
  for (const int64_t channels : {1, 3})
    for (const auto& [height, width] : {std::pair{1, 1}, {1, 9}, {9, 1}, {2, 2}})
      for (const double magnitude : {0., 10.})
        for (const double std : {0., 0.5, 100.}) {
          Random random(3);
          const Image in = speckles(height, width, channels, 20, 200);
          for (int i = 0; i < 60; ++i) {
            const Image out =
                rand_augment(in, {.ops = 3, .magnitude = magnitude, .std = std, .probability = 1},
                             Filter::kBicubic, kFill, random);
            ASSERT_EQ(out.height, height);
            ASSERT_EQ(out.width, width);
            ASSERT_EQ(out.channels, channels);
          }
        }
}

}  // namespace
}  // namespace qna::data
