#include "qna/predict/image_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/complaint.h"

namespace qna::predict {
namespace {

struct FloatImage {
  int64_t height, width;
  std::vector<float> numbers;
  ImageView view() const { return {height, width, 3, numbers.data()}; }
};

// An image by a formula that make_metrics.py has too.
FloatImage wave(int64_t height, int64_t width, double phase) {
  FloatImage image{height, width, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        const double row = static_cast<double>(y), column = static_cast<double>(x);
        const double channel = static_cast<double>(c);
        image.numbers.push_back(
            static_cast<float>(0.5 + 0.25 * std::sin(0.7 * row + phase + channel) +
                               0.25 * std::cos(0.3 * column * (1 + 0.1 * row) - channel)));
      }
  return image;
}

// Numbers of scikit-image 0.26 for wave(24, 31, 0) and wave(24, 31, 0.4) in float64; see
// tests/golden/make_metrics.py. Here they are rounded to float32, by up to 3e-8 each.
TEST(ImageMetrics, AgreeWithScikitImage) {
  const FloatImage a = wave(24, 31, 0), b = wave(24, 31, 0.4);
  EXPECT_NEAR(mean_squared_error(a.view(), b.view()), 0.004918812585138127, 1e-9);
  EXPECT_NEAR(psnr(a.view(), b.view()), 23.081397244605768, 1e-6);
  EXPECT_NEAR(ssim(a.view(), b.view()).all, 0.9557773621801134, 1e-8);
}

TEST(ImageMetrics, MeanAbsoluteError) {
  const FloatImage a{1, 2, {0, 0.25f, 0.5f, 0.75f, 1, 1}};
  const FloatImage b{1, 2, {1, 0.25f, 0.25f, 1, 1, 0.5f}};
  EXPECT_DOUBLE_EQ(mean_absolute_error(a.view(), b.view()), 2.0 / 6);
}

TEST(ImageMetrics, EqualImages) {
  const FloatImage a = wave(16, 20, 0);
  EXPECT_EQ(mean_absolute_error(a.view(), a.view()), 0);
  EXPECT_TRUE(std::isinf(psnr(a.view(), a.view())));
  EXPECT_NEAR(ssim(a.view(), a.view()).all, 1, 1e-12);
}

TEST(ImageMetrics, FactorsOfSsim) {
  const FloatImage a = wave(7, 7, 0), b = wave(7, 7, 0.4);
  FloatImage red = a, other = b;  // one window: one channel of 7 x 7 pixels
  for (FloatImage* image : {&red, &other}) {
    for (size_t i = 0; i < image->numbers.size(); i += 3) {
      image->numbers[i + 1] = image->numbers[i + 2] = image->numbers[i];
    }
  }
  const Ssim one = ssim(red.view(), other.view());
  EXPECT_NEAR(one.light * one.contrast * one.structure, one.all, 1e-12);
  EXPECT_LT(one.structure, 0.99);
  // Lighter everywhere; flatter around the middle.
  const FloatImage wide = wave(20, 20, 0);
  FloatImage lighter = wide, flatter = wide;
  for (float& number : lighter.numbers) number += 0.3f;
  for (float& number : flatter.numbers) number = 0.5f + 0.5f * (number - 0.5f);
  const Ssim light = ssim(lighter.view(), wide.view());
  EXPECT_LT(light.light, 0.95);
  EXPECT_NEAR(light.contrast, 1, 1e-5);
  EXPECT_NEAR(light.structure, 1, 1e-5);
  const Ssim flat = ssim(flatter.view(), wide.view());
  EXPECT_NEAR(flat.contrast, 0.8, 0.02);  // 2 * 0.5 / (1 + 0.25)
  EXPECT_NEAR(flat.structure, 1, 0.02);
}

TEST(ImageMetrics, BadInput) {
  const FloatImage a = wave(16, 16, 0), wide = wave(16, 17, 0), low = wave(6, 16, 0);
  testing::expect_complaint([&] { psnr(a.view(), wide.view()); }, {"one size", "16 x 17"});
  testing::expect_complaint([&] { ssim(low.view(), low.view()); }, {"7 x 7", "6 x 16"});
}

}  // namespace
}  // namespace qna::predict
