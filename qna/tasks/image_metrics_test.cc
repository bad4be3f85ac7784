#include "qna/tasks/image_metrics.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "tests/support/complaint.h"

namespace qna::tasks {
namespace {

using torch::Tensor;

// A picture by a formula that make_metrics.py has too.
Tensor wave(int64_t height, int64_t width, double phase) {
  const Tensor y = torch::arange(height, torch::kDouble).view({-1, 1, 1});
  const Tensor x = torch::arange(width, torch::kDouble).view({1, -1, 1});
  const Tensor c = torch::arange(3, torch::kDouble).view({1, 1, -1});
  return (0.5 + 0.25 * (0.7 * y + phase + c).sin() + 0.25 * (0.3 * x * (1 + 0.1 * y) - c).cos())
      .unsqueeze(0);
}

// Numbers of scikit-image 0.26 for wave(24, 31, 0) and wave(24, 31, 0.4); see
// tests/golden/make_metrics.py.
TEST(ImageMetrics, AgreeWithScikitImage) {
  const Tensor a = wave(24, 31, 0), b = wave(24, 31, 0.4);
  EXPECT_NEAR(mean_squared_error(a, b).item<double>(), 0.004918812585138127, 1e-12);
  EXPECT_NEAR(psnr(a, b).item<double>(), 23.081397244605768, 1e-9);
  EXPECT_NEAR(ssim(a, b).item<double>(), 0.9557773621801134, 1e-9);
}

TEST(ImageMetrics, PicturesOfABatchAreApart) {
  const Tensor a = torch::cat({wave(16, 16, 0), wave(16, 16, 1)});
  const Tensor b = torch::cat({wave(16, 16, 0.3), wave(16, 16, 1.1)});
  for (const auto& metric : {mean_absolute_error, mean_squared_error, psnr, ssim}) {
    const Tensor both = metric(a, b);
    for (int64_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(both[i].item<double>(),
                  metric(a.slice(0, i, i + 1), b.slice(0, i, i + 1)).item<double>(), 1e-12);
    }
  }
}

TEST(ImageMetrics, EqualPictures) {
  const Tensor a = wave(16, 20, 0);
  EXPECT_EQ(mean_absolute_error(a, a).item<double>(), 0);
  EXPECT_TRUE(std::isinf(psnr(a, a).item<double>()));
  EXPECT_NEAR(ssim(a, a).item<double>(), 1, 1e-12);
}

TEST(ImageMetrics, GridsShowAtTheirPeriod) {
  torch::manual_seed(3);
  const Tensor noise = 0.1 * torch::randn({4, 64, 64, 3});
  for (const int64_t period : {2, 4, 8}) {
    EXPECT_NEAR(grid_energy(error_power(noise), period), 1, 0.9) << period;
    const Tensor grid = (torch::arange(64) % period == 0).to(torch::kFloat).view({1, 1, 64, 1});
    const Tensor power = error_power(noise + 0.05 * grid);
    EXPECT_GT(grid_energy(power, period), 5) << period;
  }
  // Errors that grow from one side to the other make an edge where the picture begins again, but no
  // grid.
  const Tensor ramp = torch::linspace(-1, 1, 64).view({1, 1, 64, 1});
  for (const int64_t period : {2, 4, 8}) {
    const Tensor power = error_power(0.1 * torch::randn({64, 64, 64, 3}) + ramp);
    EXPECT_NEAR(grid_energy(power, period), 1, 0.2) << period;
  }
  // A grid of 4 is not one of 8.
  const Tensor four = (torch::arange(64) % 4 == 0).to(torch::kFloat).view({1, 1, 64, 1});
  EXPECT_LT(grid_energy(error_power(noise + 0.05 * four), 8), 2);
}

TEST(ImageMetrics, BadInput) {
  const Tensor a = wave(16, 16, 0);
  const auto names = [](const std::function<void()>& call, const char* word) {
    EXPECT_TRUE(testing::contains(testing::complaint(call), word)) << word;
  };
  names([&] { psnr(a, wave(16, 17, 0)); }, "one size");
  names([&] { ssim(wave(6, 16, 0), wave(6, 16, 0)); }, "7 x 7");
  names([&] { grid_energy(error_power(a), 4); }, "period");
}

}  // namespace
}  // namespace qna::tasks
