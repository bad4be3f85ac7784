#include "qna/engine/table.h"

#include <algorithm>
#include <cmath>

namespace qna::engine {
namespace {

// The four neighbours of a place and their weights: Keys' cubic with a = -0.75, as torch has it.
struct Neighbours {
  std::array<int64_t, 4> at;
  std::array<double, 4> weight;
};

Neighbours neighbours(int64_t place, int64_t from, int64_t to) {
  constexpr double kA = -0.75;
  const auto near = [](double x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  const double source =
      (static_cast<double>(place) + 0.5) * static_cast<double>(from) / static_cast<double>(to) -
      0.5;
  const double first = std::floor(source);
  const double t = source - first;
  Neighbours n;
  for (int64_t i = 0; i < 4; ++i) {
    n.at[i] = std::clamp<int64_t>(static_cast<int64_t>(first) + i - 1, 0, from - 1);
  }
  n.weight = {far(t + 1), near(t), near(1 - t), far(2 - t)};
  return n;
}

}  // namespace

void resize_bicubic(float* out, const float* table, std::array<int64_t, 2> from,
                    std::array<int64_t, 2> to, int64_t columns) {
  for (int64_t y = 0; y < to[0]; ++y) {
    const Neighbours rows = neighbours(y, from[0], to[0]);
    for (int64_t x = 0; x < to[1]; ++x) {
      const Neighbours cells = neighbours(x, from[1], to[1]);
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (int i = 0; i < 4; ++i) {
          double row = 0;
          for (int k = 0; k < 4; ++k) {
            row += cells.weight[k] * table[(rows.at[i] * from[1] + cells.at[k]) * columns + c];
          }
          sum += rows.weight[i] * row;
        }
        out[(y * to[1] + x) * columns + c] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace qna::engine
