// How much the errors of images repeat themselves, as grids and checkerboards of up-sampling do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qna/predict/image_metrics.h"

namespace qna::predict {

// Of images of one size. Looks only at the frequencies that it needs: those of the periods and
// those around them, some hundred of all.
class GridEnergy {
 public:
  // Throws qna::Error unless the sides are multiples of each period and at least 8 times as large.
  GridEnergy(int64_t height, int64_t width, std::vector<int64_t> periods);

  const std::vector<int64_t>& periods() const { return periods_; }
  // How many frequencies it looks at.
  size_t size() const { return frequencies_.size(); }

  // The power of the spectrum of `made` minus `wanted`, summed over the channels, at those
  // frequencies: [size()]. Powers of many images may be added up.
  std::vector<double> power_of(const ImageView& made, const ImageView& wanted) const;

  // The power at that period, across, down and along both diagonals, over that of the frequencies
  // up to two steps away. 1: not more than around it.
  double energy(std::span<const double> power, int64_t period) const;

 private:
  struct Frequency {
    int64_t y, x;  // of height and of width; x at most half of it
    bool operator==(const Frequency&) const = default;
    auto operator<=>(const Frequency&) const = default;
  };
  Frequency canonical(int64_t y, int64_t x) const;
  double at(std::span<const double> power, int64_t y, int64_t x) const;
  double around(std::span<const double> power, int64_t y, int64_t x) const;
  template <typename Visit>
  void for_each_around(int64_t y, int64_t x, Visit visit) const;

  int64_t height_, width_;
  std::vector<int64_t> periods_;
  std::vector<Frequency> frequencies_;  // sorted
  std::vector<int64_t> columns_;        // the different x of them, sorted
  std::vector<double> across_;          // [width, columns, 2]: cosine and sine
  std::vector<double> down_;            // [height, 2]: of one turn over the height
};

}  // namespace qna::predict
