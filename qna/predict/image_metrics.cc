#include "qna/predict/image_metrics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "qna/base/error.h"

namespace qna::predict {
namespace {

constexpr int64_t kWindow = 7;  // of SSIM

void check_images(const ImageView& a, const ImageView& b, const char* who) {
  check(a.height == b.height && a.width == b.width && a.channels == b.channels && a.count() > 0,
        "{}: both must be pictures of one size, got {} x {} x {} and {} x {} x {}", who, a.height,
        a.width, a.channels, b.height, b.width, b.channels);
}

// Means over the windows of one row of them: of x, y, x * x, y * y and x * y.
class WindowMeans {
 public:
  explicit WindowMeans(const ImageView& view)
      : row_(view.width * view.channels), channels_(view.channels) {
    for (auto& sums : down_) sums.resize(row_);
  }

  int64_t windows() const { return row_ - (kWindow - 1) * channels_; }

  // Of the windows whose first row is that of the pointers.
  void look_at(const float* a, const float* b) {
    for (auto& sums : down_) sums.assign(row_, 0);
    for (int64_t y = 0; y < kWindow; ++y, a += row_, b += row_) {
      for (int64_t i = 0; i < row_; ++i) {
        const double p = a[i], q = b[i];
        down_[0][i] += p;
        down_[1][i] += q;
        down_[2][i] += p * p;
        down_[3][i] += q * q;
        down_[4][i] += p * q;
      }
    }
  }
  double mean(int which, int64_t window) const {
    double sum = 0;
    for (int64_t x = 0; x < kWindow; ++x) sum += down_[which][window + x * channels_];
    return sum / (kWindow * kWindow);
  }

 private:
  const int64_t row_, channels_;
  std::vector<double> down_[5];  // sums over the rows, by column and channel
};

}  // namespace

double mean_absolute_error(const ImageView& a, const ImageView& b) {
  check_images(a, b, "mean_absolute_error");
  double sum = 0;
  for (int64_t i = 0; i < a.count(); ++i) sum += std::abs(a.numbers[i] - b.numbers[i]);
  return sum / static_cast<double>(a.count());
}

double mean_squared_error(const ImageView& a, const ImageView& b) {
  check_images(a, b, "mean_squared_error");
  double sum = 0;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double error = static_cast<double>(a.numbers[i]) - static_cast<double>(b.numbers[i]);
    sum += error * error;
  }
  return sum / static_cast<double>(a.count());
}

double psnr(const ImageView& a, const ImageView& b) {
  return -10 * std::log10(mean_squared_error(a, b));
}

Ssim ssim(const ImageView& a, const ImageView& b) {
  check_images(a, b, "ssim");
  check(a.height >= kWindow && a.width >= kWindow,
        "ssim: pictures must have at least {} x {} pixels, got {} x {}", kWindow, kWindow, a.height,
        a.width);
  constexpr double kC1 = 0.01 * 0.01;
  constexpr double kC2 = 0.03 * 0.03;
  constexpr double kSample = kWindow * kWindow / (kWindow * kWindow - 1.0);
  WindowMeans means(a);
  const int64_t rows = a.height - kWindow + 1;
  Ssim sum;
  for (int64_t y = 0; y < rows; ++y) {
    const int64_t first = y * a.width * a.channels;
    means.look_at(a.numbers + first, b.numbers + first);
    for (int64_t i = 0; i < means.windows(); ++i) {
      const double mean_x = means.mean(0, i), mean_y = means.mean(1, i);
      const double var_x = kSample * (means.mean(2, i) - mean_x * mean_x);
      const double var_y = kSample * (means.mean(3, i) - mean_y * mean_y);
      const double covariance = kSample * (means.mean(4, i) - mean_x * mean_y);
      sum.all += (2 * mean_x * mean_y + kC1) * (2 * covariance + kC2) /
                 ((mean_x * mean_x + mean_y * mean_y + kC1) * (var_x + var_y + kC2));
      // Rounding can leave less than 0.
      const double deviations = std::sqrt(std::max(0.0, var_x) * std::max(0.0, var_y));
      sum.light += (2 * mean_x * mean_y + kC1) / (mean_x * mean_x + mean_y * mean_y + kC1);
      sum.contrast += (2 * deviations + kC2) / (var_x + var_y + kC2);
      sum.structure += (2 * covariance + kC2) / (2 * deviations + kC2);
    }
  }
  const auto windows = static_cast<double>(rows * means.windows());
  return {sum.all / windows, sum.light / windows, sum.contrast / windows, sum.structure / windows};
}

}  // namespace qna::predict
