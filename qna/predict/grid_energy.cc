#include "qna/predict/grid_energy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <set>

#include "qna/base/error.h"

namespace qna::predict {
namespace {

// exp(2 pi i turns / whole)
std::array<double, 2> on_circle(int64_t turns, int64_t whole) {
  const double angle =
      2 * std::numbers::pi * static_cast<double>(turns % whole) / static_cast<double>(whole);
  return {std::cos(angle), std::sin(angle)};
}

// The frequencies of a period: across, down, and along both diagonals. The last two are the same
// for a period of 2.
std::array<std::array<int64_t, 2>, 4> of_period(int64_t height, int64_t width, int64_t period) {
  const int64_t y = height / period, x = width / period;
  return {{{y, 0}, {0, x}, {y, x}, {y, width - x}}};
}

}  // namespace

// The frequencies up to 2 steps away, without the middle. A frequency of an axis is beside those of
// that axis only: edges of images put power there that has nothing to do with grids.
template <typename Visit>
void GridEnergy::for_each_around(int64_t y, int64_t x, Visit visit) const {
  for (int64_t dy = -2; dy <= 2; ++dy)
    for (int64_t dx = -2; dx <= 2; ++dx) {
      if ((dy == 0 && dx == 0) || (y == 0 && dy != 0) || (x == 0 && dx != 0)) continue;
      visit(y + dy, x + dx);
    }
}

GridEnergy::GridEnergy(int64_t height, int64_t width, std::vector<int64_t> periods)
    : height_(height), width_(width), periods_(std::move(periods)) {
  std::set<Frequency> needed;
  for (const int64_t period : periods_) {
    check(period >= 2 && height % period == 0 && width % period == 0 && height >= 8 * period &&
              width >= 8 * period,
          "grid_energy: the sides must be multiples of the period {} and at least 8 times as "
          "large, got {} x {}",
          period, height, width);
    for (const auto& [y, x] : of_period(height, width, period)) {
      needed.insert(canonical(y, x));
      for_each_around(y, x, [&](int64_t fy, int64_t fx) { needed.insert(canonical(fy, fx)); });
    }
  }
  frequencies_.assign(needed.begin(), needed.end());
  std::set<int64_t> columns;
  for (const Frequency& frequency : frequencies_) columns.insert(frequency.x);
  columns_.assign(columns.begin(), columns.end());
  for (int64_t x = 0; x < width; ++x)
    for (const int64_t column : columns_) {
      const auto [cosine, sine] = on_circle(column * x, width);
      across_.insert(across_.end(), {cosine, sine});
    }
  for (int64_t y = 0; y < height; ++y) {
    const auto [cosine, sine] = on_circle(y, height);
    down_.insert(down_.end(), {cosine, sine});
  }
}

// A real image has the same power at opposite frequencies: one half of them is enough.
GridEnergy::Frequency GridEnergy::canonical(int64_t y, int64_t x) const {
  y = (y + height_) % height_;
  x = (x + width_) % width_;
  if (2 * x <= width_) return {y, x};
  return {(height_ - y) % height_, width_ - x};
}

std::vector<double> GridEnergy::power_of(const ImageView& made, const ImageView& wanted) const {
  check(made.height == height_ && made.width == width_ && wanted.height == height_ &&
            wanted.width == width_ && made.channels == wanted.channels,
        "grid_energy: pictures must be {} x {} and have as many channels, got {} x {} x {} and "
        "{} x {} x {}",
        height_, width_, made.height, made.width, made.channels, wanted.height, wanted.width,
        wanted.channels);
  const int64_t channels = made.channels;
  const size_t wide = 2 * columns_.size();
  // Along the rows first: [channels, height, columns, 2]
  std::vector<double> rows(channels * height_ * wide);
  for (int64_t y = 0; y < height_; ++y)
    for (int64_t x = 0; x < width_; ++x)
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t i = (y * width_ + x) * channels + c;
        const double error = made.numbers[i] - wanted.numbers[i];
        double* const sums = rows.data() + (c * height_ + y) * wide;
        const double* const waves = across_.data() + x * wide;
        for (size_t k = 0; k < wide; ++k) sums[k] += error * waves[k];
      }
  // Then down the few columns.
  std::vector<double> power;
  for (const Frequency& frequency : frequencies_) {
    const auto column = std::lower_bound(columns_.begin(), columns_.end(), frequency.x);
    const size_t place = 2 * (column - columns_.begin());
    double total = 0;
    for (int64_t c = 0; c < channels; ++c) {
      double real = 0, imaginary = 0;
      for (int64_t y = 0; y < height_; ++y) {
        const double* const sum = rows.data() + (c * height_ + y) * wide + place;
        const double* const wave = down_.data() + 2 * (frequency.y * y % height_);
        real += sum[0] * wave[0] - sum[1] * wave[1];
        imaginary += sum[0] * wave[1] + sum[1] * wave[0];
      }
      total += real * real + imaginary * imaginary;
    }
    power.push_back(total);
  }
  return power;
}

double GridEnergy::at(std::span<const double> power, int64_t y, int64_t x) const {
  const auto found = std::lower_bound(frequencies_.begin(), frequencies_.end(), canonical(y, x));
  return power[found - frequencies_.begin()];
}

double GridEnergy::around(std::span<const double> power, int64_t y, int64_t x) const {
  double sum = 0;
  int count = 0;
  for_each_around(y, x, [&](int64_t fy, int64_t fx) {
    sum += at(power, fy, fx);
    ++count;
  });
  return sum / count;
}

double GridEnergy::energy(std::span<const double> power, int64_t period) const {
  check(std::find(periods_.begin(), periods_.end(), period) != periods_.end(),
        "grid_energy: period {} is none of those that were given", period);
  check(power.size() == size(), "grid_energy: power must have {} numbers, got {}", size(),
        power.size());
  double at_period = 0, near = 0;
  for (const auto& [y, x] : of_period(height_, width_, period)) {
    at_period += at(power, y, x);
    near += around(power, y, x);
  }
  return near > 0 ? at_period / near : 1;
}

}  // namespace qna::predict
