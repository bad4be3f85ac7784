// The steps of docs/augmentation.md.
#include "qna/data/augment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "qna/base/error.h"
#include "qna/data/rand_augment.h"
#include "qna/data/speckles_testonly.h"
#include "qna/image/crop.h"
#include "qna/image/enhance.h"

namespace qna::data {
namespace {

using image::Filter;
using image::Image;

// Red is x, green is y.
Image coordinates(int64_t height, int64_t width) {
  Image image = image::make_image(height, width, 3);
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      image.row(y)[3 * x] = static_cast<uint8_t>(x);
      image.row(y)[3 * x + 1] = static_cast<uint8_t>(y);
    }
  return image;
}

// Nothing but a resize.
Augment plain(int64_t height, int64_t width) {
  return {.size = {height, width}, .crop_scale = {1, 1}, .crop_ratio = {1, 1}, .flip = 0};
}

TEST(Augment, AViewIsTakenAsItIs) {
  const Image image = coordinates(20, 30);
  for (const bool mirrored : {false, true}) {
    const View view{3, 5, 8, 10, mirrored};
    Random random(1, 2, 3, kAugment);
    const Image part = image::crop(image, 3, 5, 8, 10);
    const Augment options{.size = {8, 10}, .flip = mirrored ? 0.0 : 1.0};
    EXPECT_EQ(augment(image, options, random, &view).pixels,
              mirrored ? image::flip(part).pixels : part.pixels);
  }
}

TEST(Augment, PartsHaveTheirShareAndRatio) {
  const Image image = coordinates(200, 250);
  const Augment options = {
      .size = {64, 64}, .crop_scale = {0.2, 0.6}, .filter = Filter::kBilinear, .flip = 0};
  Random random(1);
  double low_area = 1, high_area = 0, low_ratio = 9, high_ratio = 0, low_x = 250, high_x = 0;
  for (int i = 0; i < 1500; ++i) {
    const Image out = augment(image, options, random);
    const auto at = [&](int64_t y, int64_t x, int64_t c) {
      return static_cast<double>(out.row(y)[3 * x + c]);
    };
    // Far from the edges a ramp stays a ramp; values are rounded, which can make an error of 1.
    const double width = (at(0, 58, 0) - at(0, 5, 0)) / 53 * 64;
    const double height = (at(58, 0, 1) - at(5, 0, 1)) / 53 * 64;
    const double area = width * height / (200 * 250);
    const double ratio = width / height;
    ASSERT_GT(area, 0.2 * 0.96);
    ASSERT_LT(area, 0.6 * 1.04);
    ASSERT_GT(ratio, 0.75 * 0.96);
    ASSERT_LT(ratio, 4. / 3 * 1.04);
    low_area = std::min(low_area, area);
    high_area = std::max(high_area, area);
    low_ratio = std::min(low_ratio, ratio);
    high_ratio = std::max(high_ratio, ratio);
    low_x = std::min(low_x, at(0, 5, 0));
    high_x = std::max(high_x, at(0, 58, 0));
  }
  // All of the range is used.
  EXPECT_LT(low_area, 0.22);
  EXPECT_GT(high_area, 0.56);
  EXPECT_LT(low_ratio, 0.78);
  EXPECT_GT(high_ratio, 1.28);
  EXPECT_LT(low_x, 20);
  EXPECT_GT(high_x, 230);
}

TEST(Augment, FirstTryThatFitsIsTaken) {
  // torchvision's RandomResizedCrop in plain words, from the same numbers.
  const Image image = speckles(37, 90, 3);
  const Augment options = {.size = {16, 20}, .flip = 0};
  int fitted_late = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random again(seed);
    Image expected;
    for (int i = 0; i < 10; ++i) {
      const double area = 37. * 90 * again.uniform(0.08, 1);
      const double ratio = std::exp(again.uniform(std::log(0.75), std::log(4. / 3)));
      const int64_t w = std::lrint(std::sqrt(area * ratio));
      const int64_t h = std::lrint(std::sqrt(area / ratio));
      if (w > 90 || h > 37) continue;
      fitted_late += i > 0;
      const int64_t top = again.below(37 - h + 1);
      const int64_t left = again.below(90 - w + 1);
      expected = image::resize(image::crop(image, top, left, h, w), 16, 20, Filter::kBicubic);
      break;
    }
    if (expected.height == 0) {  // the middle, 37 * 4 / 3 = 49.3 wide
      expected = image::resize(image::crop(image, 0, 20, 37, 49), 16, 20, Filter::kBicubic);
    }
    Random random(seed);
    EXPECT_EQ(augment(image, options, random).pixels, expected.pixels) << seed;
  }
  EXPECT_GT(fitted_late, 20);
}

TEST(Augment, MiddleWhereNothingFits) {
  const struct {
    int64_t height, width;
    int64_t top, left, part_height, part_width;
  } rows[] = {
      {10, 31, 0, 9, 10, 13},  // 13.33
      {31, 10, 9, 0, 13, 10},  // 13.33
      {1, 200, 0, 99, 1, 1},   // 1.33
      {200, 1, 99, 0, 1, 1},  {6, 100, 0, 46, 6, 8},
  };
  for (const auto& row : rows) {
    const Image image = speckles(row.height, row.width, 3);
    const Image part = image::crop(image, row.top, row.left, row.part_height, row.part_width);
    Augment options = {.size = {8, 9}, .crop_scale = {1, 1}, .flip = 0};
    Random random(1);
    EXPECT_EQ(augment(image, options, random).pixels,
              image::resize(part, 8, 9, options.filter).pixels)
        << row.height << " x " << row.width;
  }
}

TEST(Augment, WholeImageOfRatioOne) {
  const Image image = speckles(33, 33, 3);
  Random random(1);
  EXPECT_EQ(augment(image, plain(20, 25), random).pixels,
            image::resize(image, 20, 25, Filter::kBicubic).pixels);
  EXPECT_EQ(augment(image, plain(33, 33), random).pixels, image.pixels);
}

TEST(Augment, Flip) {
  const Image image = speckles(8, 8, 3);
  const Image mirror = image::flip(image);
  Augment options = plain(8, 8);
  Random random(1);
  options.flip = 1;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(augment(image, options, random).pixels, mirror.pixels);
  options.flip = 0.25;
  int flipped = 0;
  for (int i = 0; i < 1000; ++i) {
    const Image out = augment(image, options, random);
    flipped += out.pixels == mirror.pixels;
    EXPECT_TRUE(out.pixels == mirror.pixels || out.pixels == image.pixels);
  }
  EXPECT_NEAR(flipped, 250, 70);  // 5 deviations
}

TEST(Augment, PadIsReflected) {
  const Image image = speckles(5, 6, 3);
  Augment options = {.size = {5, 6}, .crop_scale = {1, 1}, .pad = 3, .flip = 0};
  const auto mirrored = [](int64_t i, int64_t size) {
    while (i < 0 || i >= size) i = i < 0 ? -i : 2 * size - 2 - i;
    return i;
  };
  std::set<std::string> allowed;
  for (int64_t top = -3; top <= 3; ++top)
    for (int64_t left = -3; left <= 3; ++left) {
      Image part = image::make_image(5, 6, 3);
      for (int64_t y = 0; y < 5; ++y)
        for (int64_t x = 0; x < 6; ++x)
          for (int64_t c = 0; c < 3; ++c) {
            part.row(y)[3 * x + c] = image.row(mirrored(y + top, 5))[3 * mirrored(x + left, 6) + c];
          }
      allowed.insert(bytes(part));
    }
  ASSERT_EQ(allowed.size(), 49u);
  std::set<std::string> seen;
  Random random(1);
  for (int i = 0; i < 1000; ++i) seen.insert(bytes(augment(image, options, random)));
  EXPECT_EQ(seen, allowed);  // none missing has probability 49 exp(-1000 / 49)
  // An image of another size is resized first.
  const Image large = speckles(10, 10, 1);
  Random other(1);
  EXPECT_EQ(augment(large, options, other).pixels.size(), 30u);
}

TEST(Augment, ColorJitterInPlainWords) {
  const Image image = speckles(9, 9, 3);
  for (const double amount : {0.4, 3.0}) {
    Augment options = plain(9, 9);
    options.color_jitter = amount;
    std::set<std::string> orders;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      // Every order of the three with the factors drawn first: one of them comes out.
      Random random(seed);
      const Image out = augment(image, options, random);
      Random again(seed);
      for (int i = 0; i < 4; ++i) again.uniform();  // area, ratio, top, left
      again.uniform();                              // flip
      const double low = std::max(0., 1 - amount);
      const double brightness = again.uniform(low, 1 + amount);
      const double contrast = again.uniform(low, 1 + amount);
      const double saturation = again.uniform(low, 1 + amount);
      std::string order = "bcs";
      int matches = 0;
      do {
        Image expected = image;
        for (const char step : order) {
          if (step == 'b') expected = image::brightness(expected, brightness);
          if (step == 'c') expected = image::contrast(expected, contrast);
          if (step == 's') expected = image::saturation(expected, saturation);
        }
        if (expected.pixels != out.pixels) continue;
        ++matches;
        orders.insert(order);
      } while (std::next_permutation(order.begin(), order.end()));
      EXPECT_GE(matches, 1) << seed;
    }
    EXPECT_EQ(orders.size(), 6u);
  }
}

TEST(Augment, RandAugmentComesAfterTheFlip) {
  const Image image = speckles(16, 16, 3);
  Augment options = plain(16, 16);
  options.flip = 1;
  options.rand_augment = RandAugment{.ops = 3, .probability = 1};
  options.fill = {0, 0.5f, 1};  // 127.5 is rounded to the even number
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    Random again(seed);
    for (int i = 0; i < 5; ++i) again.uniform();  // area, ratio, top, left, flip
    EXPECT_EQ(augment(image, options, random).pixels,
              rand_augment(image::flip(image), *options.rand_augment, Filter::kBicubic,
                           {0, 128, 255}, again)
                  .pixels);
    EXPECT_EQ(random.next(), again.next());
  }
}

TEST(Augment, SameNumbersSameBits) {
  for (const int64_t channels : {1, 3})
    for (const auto& [height, width] :
         {std::pair{1, 1}, {1, 50}, {50, 1}, {2, 2}, {31, 17}, {90, 120}}) {
      const Image image = speckles(height, width, channels);
      const Augment options = {
          .size = {24, 32}, .rand_augment = RandAugment{.ops = 3}, .color_jitter = 0.4};
      std::set<std::string> different;
      for (uint64_t index = 0; index < 30; ++index) {
        Random a(1, 2, index, kAugment);
        Random b(1, 2, index, kAugment);
        const Image out = augment(image, options, a);
        ASSERT_EQ(out.height, 24);
        ASSERT_EQ(out.width, 32);
        ASSERT_EQ(out.channels, channels);
        ASSERT_EQ(out.pixels, augment(image, options, b).pixels);
        ASSERT_EQ(a.next(), b.next());
        different.insert(bytes(out));
      }
      EXPECT_GT(different.size(), 5u);
    }
}

TEST(Erase, OneRectangleOfNoise) {
  constexpr int64_t kHeight = 60, kWidth = 80, kChannels = 3;
  double low_area = 1, high_area = 0, low_aspect = 9, high_aspect = 0;
  double sum = 0, squares = 0, values = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    std::vector<float> pixels(kHeight * kWidth * kChannels, 100);
    Random random(seed);
    erase(pixels.data(), kHeight, kWidth, kChannels, 1, random);
    int64_t top = kHeight, bottom = 0, left = kWidth, right = 0, count = 0;
    for (int64_t i = 0; i < kHeight * kWidth * kChannels; ++i) {
      if (pixels[i] == 100) continue;
      ++count;
      sum += pixels[i];
      squares += pixels[i] * pixels[i];
      const int64_t y = i / kChannels / kWidth;
      const int64_t x = i / kChannels % kWidth;
      top = std::min(top, y);
      bottom = std::max(bottom, y + 1);
      left = std::min(left, x);
      right = std::max(right, x + 1);
    }
    ASSERT_GT(count, 0);
    const int64_t h = bottom - top;
    const int64_t w = right - left;
    ASSERT_EQ(count, h * w * kChannels);
    ASSERT_LT(h, kHeight);
    ASSERT_LT(w, kWidth);
    values += static_cast<double>(count);
    const double area = static_cast<double>(h * w) / (kHeight * kWidth);
    const double aspect = static_cast<double>(h) / static_cast<double>(w);
    // Sides are rounded, the shortest from 5.4 pixels.
    ASSERT_GT(area, 0.02 * 0.85);
    ASSERT_LT(area, 1. / 3 * 1.15);
    ASSERT_GT(aspect, 0.3 * 0.85);
    ASSERT_LT(aspect, 1 / 0.3 * 1.15);
    low_area = std::min(low_area, area);
    high_area = std::max(high_area, area);
    low_aspect = std::min(low_aspect, aspect);
    high_aspect = std::max(high_aspect, aspect);
  }
  EXPECT_LT(low_area, 0.03);
  EXPECT_GT(high_area, 0.3);
  EXPECT_LT(low_aspect, 0.36);
  EXPECT_GT(high_aspect, 2.8);
  EXPECT_NEAR(sum / values, 0, 0.01);
  EXPECT_NEAR(squares / values, 1, 0.02);
}

TEST(Erase, Probability) {
  Random random(1);
  int erased = 0;
  for (int i = 0; i < 1000; ++i) {
    std::vector<float> pixels(10 * 10, 100);
    erase(pixels.data(), 10, 10, 1, 0, random);
    EXPECT_EQ(pixels, std::vector<float>(100, 100));
    erase(pixels.data(), 10, 10, 1, 0.25, random);
    erased += pixels != std::vector<float>(100, 100);
  }
  EXPECT_NEAR(erased, 250, 70);
}

TEST(Erase, TooSmallStaysWhole) {
  Random random(1);
  for (const auto& [height, width] : {std::pair{1, 1}, {1, 40}, {40, 1}}) {
    for (int i = 0; i < 100; ++i) {
      std::vector<float> pixels(height * width * 3, 100);
      erase(pixels.data(), height, width, 3, 1, random);  // a side of 1 leaves room for nothing
      EXPECT_EQ(pixels, std::vector<float>(height * width * 3, 100));
    }
  }
}

TEST(AugmentErrors, AreNamed) {
  const double nan = std::nan("");
  const auto said = [](const Augment& options) -> std::string {
    try {
      check_augment(options, "recipe");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({.size = {0, 5}}), "recipe: size must be two numbers in [1, 16777216], got 0, 5");
  const std::string scale =
      "recipe: crop_scale must be two rising numbers above 0 and up to 1, got ";
  EXPECT_EQ(said({.crop_scale = {0, 1}}), scale + "0, 1");
  EXPECT_EQ(said({.crop_scale = {0.5, 0.4}}), scale + "0.5, 0.4");
  EXPECT_EQ(said({.crop_scale = {0.5, 1.5}}), scale + "0.5, 1.5");
  EXPECT_EQ(said({.crop_scale = {nan, 1}}), scale + "nan, 1");
  const std::string ratio = "recipe: crop_ratio must be two rising numbers in [0.001, 1000], got ";
  EXPECT_EQ(said({.crop_ratio = {0, 1}}), ratio + "0, 1");
  EXPECT_EQ(said({.crop_ratio = {1, nan}}), ratio + "1, nan");
  EXPECT_EQ(said({.size = {5, 4}, .crop_scale = {1, 1}, .pad = 4}),
            "recipe: pad must be at least 0 and less than size, 5 x 4, got 4");
  EXPECT_EQ(said({.pad = 4}), "recipe: pad must be 0 unless crop_scale is 1, 1, got 4");
  EXPECT_EQ(said({.filter = static_cast<Filter>(9)}),
            "recipe: filter must be one of Filter, got 9");
  EXPECT_EQ(said({.flip = -0.5}), "recipe: flip must be in [0, 1], got -0.5");
  EXPECT_EQ(said({.rand_augment = RandAugment{.ops = -1}}),
            "recipe: rand_augment.ops must be in [0, 100], got -1");
  EXPECT_EQ(said({.rand_augment = RandAugment{.magnitude = 11}}),
            "recipe: rand_augment.magnitude must be in [0, 10], got 11");
  EXPECT_EQ(said({.rand_augment = RandAugment{.std = nan}}),
            "recipe: rand_augment.std must be in [0, 100], got nan");
  EXPECT_EQ(said({.rand_augment = RandAugment{.probability = 2}}),
            "recipe: rand_augment.probability must be in [0, 1], got 2");
  EXPECT_EQ(said({.color_jitter = -1}), "recipe: color_jitter must be in [0, 100], got -1");
  EXPECT_EQ(said({.erase = nan}), "recipe: erase must be in [0, 1], got nan");
  EXPECT_EQ(said({.fill = {0, 0, 2}}), "recipe: fill must be numbers in [0, 1], got 2");
  Random random(1);
  EXPECT_THROW(augment(image::make_image(4, 4, 3), {.flip = 2}, random), Error);
  EXPECT_THROW(augment({4, 4, 3, {}}, {}, random), Error);
  EXPECT_THROW(erase(nullptr, 0, 1, 1, 1, random), Error);
  EXPECT_THROW(erase(nullptr, 1, 1, 1, nan, random), Error);
}

}  // namespace
}  // namespace qna::data
