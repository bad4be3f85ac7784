#include "qna/data/mix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "qna/base/error.h"

namespace qna::data {
namespace {

// Every pixel of image i holds i + 1, its target is class i.
struct Batch {
  Batch(int64_t count, int64_t height, int64_t width, int64_t channels)
      : count(count),
        height(height),
        width(width),
        channels(channels),
        pixels(count * height * width * channels),
        targets(count * count) {
    for (size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<float>(1 + i / (height * width * channels));
    }
    for (int64_t i = 0; i < count; ++i) targets[i * count + i] = 1;
  }
  void mix(const Mix& options, Random& random) {
    data::mix(pixels.data(), targets.data(), count, height, width, channels, count, options,
              random);
  }
  float pixel(int64_t i, int64_t y, int64_t x, int64_t c) const {
    return pixels[((i * height + y) * width + x) * channels + c];
  }
  float target(int64_t i, int64_t k) const { return targets[i * count + k]; }
  int64_t partner(int64_t i) const { return std::min(i ^ 1, count - 1); }
  bool operator==(const Batch&) const = default;

  int64_t count, height, width, channels;
  std::vector<float> pixels, targets;
};

void expect_targets(const Batch& batch, double share) {
  for (int64_t i = 0; i < batch.count; ++i) {
    float sum = 0;
    for (int64_t k = 0; k < batch.count; ++k) {
      sum += batch.target(i, k);
      if (k != i && k != batch.partner(i)) {
        EXPECT_EQ(batch.target(i, k), 0);
      }
    }
    EXPECT_NEAR(sum, 1, 1e-6);
    const double expected = batch.partner(i) == i ? 1 : share;
    EXPECT_NEAR(batch.target(i, i), expected, 1e-6) << i;
  }
}

TEST(Mix, MixupOfNeighbours) {
  for (const int64_t count : {1, 2, 3, 4, 7, 8}) {
    Batch batch(count, 3, 5, 2);
    Random random(1);
    batch.mix({.mixup = 0.8}, random);
    // The same numbers: whether at all, then how much.
    Random again(1);
    again.uniform();
    const double share = again.beta(0.8);
    EXPECT_EQ(random.next(), again.next());
    for (int64_t i = 0; i < count; ++i) {
      const double expected = share * static_cast<double>(i + 1) +
                              (1 - share) * static_cast<double>(batch.partner(i) + 1);
      for (int64_t y = 0; y < 3; ++y)
        for (int64_t x = 0; x < 5; ++x)
          for (int64_t c = 0; c < 2; ++c) EXPECT_NEAR(batch.pixel(i, y, x, c), expected, 1e-5);
    }
    expect_targets(batch, share);
  }
}

TEST(Mix, CutMixSwapsOneRectangleAndCountsIt) {
  int whole = 0;
  int none = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const int64_t height = 1 + static_cast<int64_t>(seed % 9);
    const int64_t width = 1 + static_cast<int64_t>(seed % 7);
    Batch batch(5, height, width, 3);
    Random random(seed);
    batch.mix({.cutmix = 1}, random);
    // Which pixels of the first came from the second: a rectangle, the same in all images.
    int64_t top = height, bottom = 0, left = width, right = 0, area = 0;
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        const bool swapped = batch.pixel(0, y, x, 0) == 2;
        for (int64_t i = 0; i < 5; ++i)
          for (int64_t c = 0; c < 3; ++c) {
            const int64_t from = swapped ? batch.partner(i) : i;
            ASSERT_EQ(batch.pixel(i, y, x, c), static_cast<float>(from + 1));
          }
        if (!swapped) continue;
        ++area;
        top = std::min(top, y);
        bottom = std::max(bottom, y + 1);
        left = std::min(left, x);
        right = std::max(right, x + 1);
      }
    ASSERT_EQ(area, area == 0 ? 0 : (bottom - top) * (right - left));
    expect_targets(batch, 1 - static_cast<double>(area) / static_cast<double>(height * width));
    whole += area == height * width;
    none += area == 0;
  }
  EXPECT_LT(whole, 100);
  EXPECT_LT(none, 150);
}

TEST(Mix, CutMixSidesFollowTheShare) {
  // Sides are those of the image times sqrt(1 - share), rounded down, where nothing is cut off.
  int complete = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Batch batch(2, 40, 60, 1);
    Random random(seed);
    batch.mix({.cutmix = 1}, random);
    Random again(seed);
    again.uniform();
    const double side = std::sqrt(1 - again.beta(1));
    const int64_t area = std::count(batch.pixels.begin(), batch.pixels.begin() + 2400, 2.0f);
    const int64_t most = static_cast<int64_t>(40 * side) * static_cast<int64_t>(60 * side);
    EXPECT_LE(area, most);
    complete += area == most;
  }
  EXPECT_GT(complete, 5);
  EXPECT_LT(complete, 95);
}

TEST(Mix, ProbabilityAndSwitch) {
  const Batch untouched(4, 6, 6, 1);
  int mixed = 0;
  int cut = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Batch batch = untouched;
    Random random(seed);
    batch.mix({.mixup = 50, .cutmix = 50, .probability = 0.5, .switch_probability = 0.2}, random);
    if (batch == untouched) continue;
    ++mixed;
    cut += std::all_of(batch.pixels.begin(), batch.pixels.end(),
                       [](float v) { return v == std::round(v); });
  }
  EXPECT_NEAR(mixed, 500, 80);  // 5 deviations
  EXPECT_NEAR(cut, mixed * 0.2, 50);
  Random random(1);
  for (const Mix& none : {Mix{}, Mix{.mixup = 1, .probability = 0}}) {
    for (int i = 0; i < 20; ++i) {
      Batch batch = untouched;
      batch.mix(none, random);
      EXPECT_EQ(batch, untouched);
    }
  }
}

TEST(Mix, EvenSharesOfABatchAreMixedAlike) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Mix options = {.mixup = 0.8, .cutmix = 1};
    Batch whole(8, 7, 5, 3);
    Batch parts(8, 7, 5, 3);
    Random random(seed);
    whole.mix(options, random);
    for (int64_t first = 0; first < 8; first += 4) {
      Random same(seed);
      mix(parts.pixels.data() + first * 7 * 5 * 3, parts.targets.data() + first * 8, 4, 7, 5, 3, 8,
          options, same);
    }
    EXPECT_EQ(parts, whole);
  }
}

TEST(MixErrors, AreNamed) {
  const auto said = [](const Mix& mix) -> std::string {
    try {
      check_mix(mix, "recipe");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(said({.mixup = 0.8, .cutmix = 1}), "");
  EXPECT_EQ(said({.mixup = -1}), "recipe: mixup must be finite and at least 0, got -1");
  EXPECT_EQ(said({.cutmix = std::numeric_limits<double>::infinity()}),
            "recipe: cutmix must be finite and at least 0, got inf");
  EXPECT_EQ(said({.probability = 1.5}), "recipe: probability must be in [0, 1], got 1.5");
  EXPECT_EQ(said({.switch_probability = std::nan("")}),
            "recipe: switch_probability must be in [0, 1], got nan");
  Random random(1);
  EXPECT_THROW(mix(nullptr, nullptr, 2, 0, 1, 1, 1, {.mixup = 1}, random), Error);
  EXPECT_THROW(mix(nullptr, nullptr, -1, 1, 1, 1, 1, {.mixup = 1}, random), Error);
  mix(nullptr, nullptr, 0, 1, 1, 1, 1, {.mixup = 1}, random);  // nothing to do
}

}  // namespace
}  // namespace qna::data
