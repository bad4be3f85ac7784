#include "qna/tasks/image_metrics.h"

#include <array>

#include "qna/base/error.h"
#include "qna/ops/geometry.h"

namespace qna::tasks {
namespace {

using torch::Tensor;

constexpr int64_t kWindow = 7;  // of SSIM

void check_pictures(const Tensor& a, const Tensor& b, const char* who) {
  check(a.dim() == 4 && a.sizes() == b.sizes(),
        "{}: both must be pictures [B, H, W, C] of one size, got {} and {}", who,
        ops::sizes_text(a.sizes()), ops::sizes_text(b.sizes()));
}

Tensor mean_over_picture(const Tensor& x) { return x.to(torch::kDouble).flatten(1).mean(1); }

// The mean over each window that lies inside: [B, C, H, W] -> [B, C, H - 6, W - 6].
Tensor window_mean(const Tensor& x) { return at::avg_pool2d(x, kWindow, 1); }

// The mean over the frequencies up to 2 steps away, without the middle. A frequency of an axis is
// beside those of that axis only: edges of pictures put power there that has nothing to do with
// grids.
double around(const Tensor& energy, int64_t y, int64_t x) {
  const int64_t height = energy.size(0), width = energy.size(1);
  double sum = 0;
  int count = 0;
  for (int64_t dy = -2; dy <= 2; ++dy) {
    for (int64_t dx = -2; dx <= 2; ++dx) {
      if ((dy == 0 && dx == 0) || (y == 0 && dy != 0) || (x == 0 && dx != 0)) continue;
      sum += energy[(y + dy + height) % height][(x + dx + width) % width].item<double>();
      ++count;
    }
  }
  return sum / count;
}

}  // namespace

Tensor mean_absolute_error(const Tensor& a, const Tensor& b) {
  check_pictures(a, b, "mean_absolute_error");
  return mean_over_picture((a - b).abs());
}

Tensor mean_squared_error(const Tensor& a, const Tensor& b) {
  check_pictures(a, b, "mean_squared_error");
  return mean_over_picture((a.to(torch::kDouble) - b.to(torch::kDouble)).square());
}

Tensor psnr(const Tensor& a, const Tensor& b) { return -10 * mean_squared_error(a, b).log10(); }

Tensor ssim(const Tensor& a, const Tensor& b) {
  check_pictures(a, b, "ssim");
  check(a.size(1) >= kWindow && a.size(2) >= kWindow,
        "ssim: pictures must have at least {} x {} pixels, got {}", kWindow, kWindow,
        ops::sizes_text(a.sizes()));
  constexpr double kC1 = 0.01 * 0.01;
  constexpr double kC2 = 0.03 * 0.03;
  constexpr double kSample = kWindow * kWindow / (kWindow * kWindow - 1.0);
  const Tensor x = a.to(torch::kDouble).permute({0, 3, 1, 2});
  const Tensor y = b.to(torch::kDouble).permute({0, 3, 1, 2});
  const Tensor mean_x = window_mean(x), mean_y = window_mean(y);
  const Tensor var_x = kSample * (window_mean(x * x) - mean_x * mean_x);
  const Tensor var_y = kSample * (window_mean(y * y) - mean_y * mean_y);
  const Tensor covariance = kSample * (window_mean(x * y) - mean_x * mean_y);
  const Tensor similarity = (2 * mean_x * mean_y + kC1) * (2 * covariance + kC2) /
                            ((mean_x * mean_x + mean_y * mean_y + kC1) * (var_x + var_y + kC2));
  return mean_over_picture(similarity);
}

Tensor error_power(const Tensor& error) {
  check(error.dim() == 4, "error_power: error must be [B, H, W, C], got {}",
        ops::sizes_text(error.sizes()));
  const Tensor planes = error.to(torch::kDouble).permute({0, 3, 1, 2});
  return at::fft_fft2(planes).abs().square().sum({0, 1});
}

double grid_energy(const Tensor& power, int64_t period) {
  const int64_t height = power.size(0), width = power.size(1);
  check(power.dim() == 2 && period >= 2 && height % period == 0 && width % period == 0 &&
            height >= 8 * period && width >= 8 * period,
        "grid_energy: the sides must be multiples of the period {} and at least 8 times as large, "
        "got {}",
        period, ops::sizes_text(power.sizes()));
  const int64_t y = height / period, x = width / period;
  double at_period = 0, near = 0;
  // The last two are the same for a period of 2.
  for (const auto& [fy, fx] :
       {std::array{y, int64_t{0}}, {int64_t{0}, x}, {y, x}, {y, width - x}}) {
    at_period += power[fy][fx].item<double>();
    near += around(power, fy, fx);
  }
  return near > 0 ? at_period / near : 1;
}

}  // namespace qna::tasks
