// Boxes are tested by their pixels: a box around a white rectangle must be around it afterwards.
#include "qna/data/detection_augment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "qna/data/augment.h"
#include "qna/image/crop.h"
#include "tests/support/complaint.h"

namespace qna::data {
namespace {

using qna::testing::complaint;
using Corners = std::array<double, 4>;
using Size = std::array<int64_t, 2>;

// Black, with a white rectangle that the one box is around.
DetectionSample rectangle(int64_t height, int64_t width, const std::array<int64_t, 4>& box) {
  DetectionSample sample{image::make_image(height, width, 3), {}};
  for (int64_t y = box[1]; y < box[3]; ++y)
    for (int64_t x = box[0]; x < box[2]; ++x)
      std::fill_n(sample.image.row(y) + 3 * x, 3, uint8_t{255});
  sample.objects.push_back({.label = 7});
  for (size_t i = 0; i < 4; ++i) sample.objects[0].box[i] = static_cast<double>(box[i]);
  return sample;
}

// Around all pixels that are rather white.
Corners white_part(const image::Image& image) {
  Corners out = {1e9, 1e9, -1, -1};
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x) {
      if (image.row(y)[3 * x] < 128) continue;
      out = {std::min(out[0], static_cast<double>(x)), std::min(out[1], static_cast<double>(y)),
             std::max(out[2], static_cast<double>(x + 1)),
             std::max(out[3], static_cast<double>(y + 1))};
    }
  return out;
}

TEST(DetectionAugment, AMirrorImage) {
  const DetectionSample out = flip(rectangle(10, 30, {3, 2, 8, 9}));
  ASSERT_EQ(out.objects.size(), 1u);
  EXPECT_EQ(out.objects[0].label, 7);
  EXPECT_EQ(out.objects[0].box, (Corners{22, 2, 27, 9}));
  EXPECT_EQ(white_part(out.image), out.objects[0].box);
  EXPECT_EQ(flip(out).objects, rectangle(10, 30, {3, 2, 8, 9}).objects);
}

TEST(DetectionAugment, AnotherSize) {
  const DetectionSample out =
      resize(rectangle(20, 40, {4, 2, 30, 20}), 50, 60, image::Filter::kBilinear);
  EXPECT_EQ(out.image.height, 50);
  EXPECT_EQ(out.image.width, 60);
  EXPECT_EQ(out.objects[0].box, (Corners{6, 5, 45, 50}));
  EXPECT_EQ(white_part(out.image), out.objects[0].box);
  // What ends at the edge ends there, whatever the rounding.
  for (int64_t to = 1; to < 300; ++to) {
    const auto objects = scaled({{.box = {0, 0, 7, 11}}}, {11, 7}, {to, to + 1});
    EXPECT_EQ(objects[0].box,
              (Corners{0, 0, static_cast<double>(to + 1), static_cast<double>(to)}));
  }
}

TEST(DetectionAugment, APart) {
  const DetectionSample whole = rectangle(20, 40, {10, 5, 30, 15});
  const struct {
    int64_t top, left, height, width;
    std::optional<Corners> box;
  } rows[] = {
      {0, 0, 20, 40, Corners{10, 5, 30, 15}}, {2, 4, 18, 36, Corners{6, 3, 26, 13}},
      {8, 20, 4, 5, Corners{0, 0, 5, 4}},     {10, 0, 10, 12, Corners{10, 0, 12, 5}},
      {14, 29, 6, 11, Corners{0, 0, 1, 1}},   {15, 0, 5, 40, std::nullopt},
      {0, 30, 20, 10, std::nullopt},          {0, 0, 5, 10, std::nullopt},
  };
  for (const auto& row : rows) {
    const DetectionSample out = crop(whole, row.top, row.left, row.height, row.width);
    EXPECT_EQ(out.image.height, row.height);
    EXPECT_EQ(out.image.width, row.width);
    ASSERT_EQ(out.objects.size(), row.box ? 1u : 0u);
    if (!row.box) continue;
    EXPECT_EQ(out.objects[0].box, *row.box);
    EXPECT_EQ(white_part(out.image), *row.box);
  }
}

// The definition, step by step, with the same random numbers.
TEST(DetectionAugment, StepsInTheirOrder) {
  const DetectionSample sample = rectangle(60, 90, {20, 10, 70, 50});
  const DetectionAugment options{.shorter = {30, 40, 55},
                                 .longest = 70,
                                 .crop_shorter = {35, 50},
                                 .crop_size = {20, 45},
                                 .color_jitter = 0.3};
  int crops = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const DetectionSample out = augment(sample, options, random);

    Random same(seed);
    DetectionSample expected = same.chance(0.5) ? flip(sample) : sample;
    const auto resized_to = [&](const std::vector<int64_t>& lengths, int64_t longest) {
      const Size size = {expected.image.height, expected.image.width};
      const int64_t shorter = lengths[same.below(static_cast<int64_t>(lengths.size()))];
      const Size to = resized_size(size, shorter, longest);
      expected = resize(expected, to[0], to[1], image::Filter::kBilinear);
    };
    if (same.chance(0.5)) {
      ++crops;
      resized_to(options.crop_shorter, 0);
      const int64_t width = 20 + same.below(std::min<int64_t>(45, expected.image.width) - 19);
      const int64_t height = 20 + same.below(std::min<int64_t>(45, expected.image.height) - 19);
      const int64_t top = same.below(expected.image.height - height + 1);
      const int64_t left = same.below(expected.image.width - width + 1);
      expected = crop(expected, top, left, height, width);
    }
    resized_to(options.shorter, 70);
    expected.image = color_jitter(std::move(expected.image), 0.3, same);
    EXPECT_EQ(out.image.pixels, expected.image.pixels);
    EXPECT_EQ(out.objects, expected.objects);
    EXPECT_EQ(random.next(), same.next());
    // DETR's rounding may exceed the limit by half the ratio of the sides, here 45 : 20 at most.
    EXPECT_LE(std::max(out.image.height, out.image.width), 71);
  }
  EXPECT_NEAR(crops, 100, 40);
}

TEST(DetectionAugment, BoxesMoveWithThePixels) {
  const DetectionSample sample = rectangle(100, 140, {40, 30, 110, 80});
  const DetectionAugment options{
      .shorter = {80, 120}, .longest = 150, .crop_shorter = {90, 130}, .crop_size = {60, 110}};
  int found = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const DetectionSample out = augment(sample, options, random);
    const Corners pixels = white_part(out.image);
    if (out.objects.empty()) continue;
    const Corners& box = out.objects[0].box;
    if (box[2] - box[0] < 4 || box[3] - box[1] < 4) continue;  // a sliver may fade away
    ++found;
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(pixels[i], box[i], 1.5) << seed;
  }
  EXPECT_GT(found, 200);
}

TEST(DetectionAugment, EveryLengthIsUsedAlike) {
  const DetectionSample sample = rectangle(48, 64, {1, 1, 9, 9});
  std::map<int64_t, int> seen;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Random random(seed);
    const DetectionAugment options{.shorter = {20, 24, 30}, .crop = 0};
    ++seen[augment(sample, options, random).image.height];
  }
  ASSERT_EQ(seen.size(), 3u);
  for (const auto& [length, count] : seen) EXPECT_NEAR(count, 200, 60) << length;
}

TEST(DetectionAugment, OffIsOnlyTheSize) {
  const DetectionSample sample = rectangle(30, 40, {1, 1, 9, 9});
  Random random(1);
  const DetectionSample out = augment(sample, {.flip = 0, .shorter = {30}, .crop = 0}, random);
  EXPECT_EQ(out.image.pixels, sample.image.pixels);
  EXPECT_EQ(out.objects, sample.objects);
}

// An image smaller than the smallest part, or than everything, is no mistake.
TEST(DetectionAugment, TinyAndThinImages) {
  for (const Size size : {Size{1, 1}, {1, 50}, {50, 1}, {2, 3}})
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Random random(seed);
      const DetectionSample sample = rectangle(size[0], size[1], {0, 0, size[1], size[0]});
      const DetectionAugment options{
          .shorter = {8}, .longest = 40, .crop = 1, .crop_shorter = {4}, .crop_size = {6, 9}};
      const DetectionSample out = augment(sample, options, random);
      ASSERT_EQ(out.objects.size(), 1u);
      const Corners all = {0, 0, static_cast<double>(out.image.width),
                           static_cast<double>(out.image.height)};
      EXPECT_EQ(out.objects[0].box, all);
    }
  Random random(0);
  DetectionSample thin{image::make_image(1, 1 << 20, 3), {}};
  EXPECT_TRUE(qna::testing::contains(complaint([&] { augment(thin, {.crop = 1}, random); }),
                                     "at most 268435456 pixels"));
}

TEST(DetectionAugment, Mistakes) {
  const auto said = [](const DetectionAugment& options) {
    return complaint([&] { check_augment(options, "x"); });
  };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({.longest = 0}), "");
  EXPECT_EQ(said({.flip = 1.5}), "x: flip must be in [0, 1], got 1.5");
  EXPECT_EQ(said({.flip = nan}), "x: flip must be in [0, 1], got nan");
  EXPECT_EQ(said({.shorter = {}}), "x: shorter must have at least one length, got none");
  EXPECT_EQ(said({.shorter = {5, 0}}), "x: shorter must be lengths in [1, 16777216], got 0");
  EXPECT_EQ(said({.longest = -1}), "x: longest must be in [0, 16777216], got -1");
  EXPECT_EQ(said({.crop = -0.1}), "x: crop must be in [0, 1], got -0.1");
  EXPECT_EQ(said({.crop_shorter = {-4}}),
            "x: crop_shorter must be lengths in [1, 16777216], got -4");
  EXPECT_EQ(said({.crop_size = {9, 8}}),
            "x: crop_size must be two rising lengths in [1, 16777216], got 9, 8");
  EXPECT_EQ(said({.color_jitter = -1}), "x: color_jitter must be in [0, 100], got -1");
}

}  // namespace
}  // namespace qna::data
