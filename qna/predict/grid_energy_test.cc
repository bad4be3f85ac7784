#include "qna/predict/grid_energy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <functional>
#include <numbers>
#include <random>

#include "tests/support/complaint.h"

namespace qna::predict {
namespace {

constexpr int64_t kChannels = 3;

using Formula = std::function<double(int64_t y, int64_t x)>;

// Errors by a formula, the same in all channels, with noise over it.
class Errors {
 public:
  Errors(
      int64_t height, int64_t width, uint32_t seed, double noise,
      const Formula& formula = [](int64_t, int64_t) { return 0.0; })
      : height_(height), width_(width) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, noise);
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x)
        for (int64_t c = 0; c < kChannels; ++c) {
          wanted_.push_back(0.5f + 0.1f * static_cast<float>(c));
          made_.push_back(wanted_.back() + static_cast<float>(normal(random) + formula(y, x)));
        }
  }

  ImageView made() const { return {height_, width_, kChannels, made_.data()}; }
  ImageView wanted() const { return {height_, width_, kChannels, wanted_.data()}; }

  double energy(int64_t period) const {
    const GridEnergy grids(height_, width_, {period});
    return grids.energy(grids.power_of(made(), wanted()), period);
  }

  // The whole discrete Fourier transform, then what grid_energy.h says.
  double plain_energy(int64_t period) const {
    std::vector<double> power(height_ * width_);
    for (int64_t fy = 0; fy < height_; ++fy)
      for (int64_t fx = 0; fx < width_; ++fx)
        for (int64_t c = 0; c < kChannels; ++c) {
          std::complex<double> sum = 0;
          for (int64_t y = 0; y < height_; ++y)
            for (int64_t x = 0; x < width_; ++x) {
              const int64_t i = (y * width_ + x) * kChannels + c;
              const double turns = static_cast<double>(fy * y % height_) / height_ +
                                   static_cast<double>(fx * x % width_) / width_;
              sum += std::polar<double>(made_[i] - wanted_[i], 0) *
                     std::polar(1.0, -2 * std::numbers::pi * turns);
            }
          power[fy * width_ + fx] += std::norm(sum);
        }
    const auto at = [&](int64_t y, int64_t x) {
      return power[(y + height_) % height_ * width_ + (x + width_) % width_];
    };
    const int64_t y = height_ / period, x = width_ / period;
    double at_period = 0, near = 0;
    for (const auto& [fy, fx] :
         {std::array{y, int64_t{0}}, {int64_t{0}, x}, {y, x}, {y, width_ - x}}) {
      at_period += at(fy, fx);
      double sum = 0;
      int count = 0;
      for (int64_t dy = -2; dy <= 2; ++dy)
        for (int64_t dx = -2; dx <= 2; ++dx) {
          if ((dy == 0 && dx == 0) || (fy == 0 && dy != 0) || (fx == 0 && dx != 0)) continue;
          sum += at(fy + dy, fx + dx);
          ++count;
        }
      near += sum / count;
    }
    return at_period / near;
  }

 private:
  int64_t height_, width_;
  std::vector<float> made_, wanted_;
};

TEST(GridEnergy, IsThatOfTheWholeSpectrum) {
  for (const auto& [height, width, period] :
       {std::array<int64_t, 3>{16, 16, 2}, {16, 20, 2}, {32, 24, 2}, {24, 27, 3}, {32, 36, 4}}) {
    const Errors errors(height, width, 5, 0.1);
    const double plain = errors.plain_energy(period);
    EXPECT_NEAR(errors.energy(period), plain, 1e-9 * plain)
        << height << " x " << width << ", period " << period;
  }
}

TEST(GridEnergy, GridsShowAtTheirPeriod) {
  for (const int64_t period : {2, 4, 8}) {
    EXPECT_NEAR(Errors(64, 64, 3, 0.05).energy(period), 1, 0.95) << period;
    const Formula grid = [&](int64_t, int64_t x) { return x % period == 0 ? 0.05 : 0; };
    EXPECT_GT(Errors(64, 64, 3, 0.05, grid).energy(period), 5) << period;
    // Errors that grow from one side to the other make an edge where the image begins again, but
    // no grid.
    const Formula ramp = [](int64_t, int64_t x) { return static_cast<double>(x) / 32 - 1; };
    EXPECT_LT(Errors(64, 64, 3, 0.05, ramp).energy(period), 2) << period;
  }
  // A grid of 4 is not one of 8.
  const Formula four = [](int64_t, int64_t x) { return x % 4 == 0 ? 0.05 : 0; };
  EXPECT_LT(Errors(64, 64, 3, 0.05, four).energy(8), 2);
}

TEST(GridEnergy, PowersOfManyImagesAddUp) {
  const GridEnergy grids(32, 32, {2, 4});
  const Errors a(32, 32, 1, 0.1), b(32, 32, 2, 0.1);
  std::vector<double> sum = grids.power_of(a.made(), a.wanted());
  const std::vector<double> more = grids.power_of(b.made(), b.wanted());
  ASSERT_EQ(sum.size(), grids.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  // Twice the first alone has its energy.
  std::vector<double> twice = grids.power_of(a.made(), a.wanted());
  for (double& power : twice) power *= 2;
  EXPECT_NEAR(grids.energy(twice, 4), a.energy(4), 1e-12);
  EXPECT_NE(grids.energy(sum, 4), a.energy(4));
}

TEST(GridEnergy, ImagesWithoutErrors) { EXPECT_EQ(Errors(32, 32, 1, 0).energy(2), 1); }

TEST(GridEnergy, BadInput) {
  testing::expect_complaint([] { GridEnergy(16, 16, {4}); }, {"period 4", "16 x 16"});
  testing::expect_complaint([] { GridEnergy(33, 32, {2}); }, {"period 2", "33 x 32"});
  const GridEnergy grids(16, 16, {2});
  const Errors other(32, 32, 1, 0.1);
  testing::expect_complaint([&] { grids.power_of(other.made(), other.wanted()); }, {"16 x 16"});
  testing::expect_complaint([&] { grids.energy(std::vector<double>(grids.size()), 4); },
                            {"period 4"});
  testing::expect_complaint([&] { grids.energy({}, 2); }, {"power"});
}

}  // namespace
}  // namespace qna::predict
