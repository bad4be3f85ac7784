// Memory for the kernels under test: inputs without one element to spare, outputs between guards.
#pragma once

#include <limits>
#include <random>

#include "qna/kernels/results_testonly.h"
#include "qna/kernels/window_attention.h"

namespace qna::kernels::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename Floats>
void round_to_bfloat16(Floats& floats) {
  for (float& x : floats) x = to_float(from_float<BFloat16>(x));
}

// An output buffer. All of it, guards and gaps between pixels too, holds a canary; take() takes the
// results out and leaves canaries, so that what is not one afterwards was written outside.
template <typename T>
class GuardedOutput {
 public:
  GuardedOutput(const char* name, int64_t count)
      : name_(name), cells_(count + 2 * kGuard, canary()) {}

  // An odd guard: no vector's alignment.
  T* data() { return cells_.data() + kGuard; }
  int64_t size() const { return static_cast<int64_t>(cells_.size()) - 2 * kGuard; }

  // [pixels, heads, dim], wherever `layout` has put them.
  Part take(int64_t pixels, int64_t heads, int64_t dim, const ValueLayout& layout) {
    Part part{name_, {}, rounding_to<T>()};
    part.cells.reserve(pixels * heads * dim);
    for (int64_t n = 0; n < pixels; ++n)
      for (int64_t head = 0; head < heads; ++head)
        for (int64_t d = 0; d < dim; ++d) {
          T& cell =
              data()[n * layout.pixel_stride + head * layout.head_stride + d * layout.dim_stride];
          part.cells.push_back(to_float(cell));
          cell = canary();
        }
    EXPECT_TRUE(std::all_of(cells_.begin(), cells_.end(),
                            [](const T& cell) { return to_float(cell) == to_float(canary()); }))
        << "written outside of " << name_;
    return part;
  }
  Part take(int64_t count) { return take(1, 1, count, {0, 0, 1}); }
  Part take() { return take(size()); }

 private:
  static constexpr int64_t kGuard = 67;
  // No result comes near: a cell that was never written is a wrong result too.
  static T canary() { return from_float<T>(-31337.0f); }
  const char* name_;
  std::vector<T> cells_;
};

// What call(out) writes into the `count` cells at `out`, and nowhere else.
template <typename T = float, typename Call>
Results one_output(int64_t count, const Tolerance& tolerance, const Call& call) {
  GuardedOutput<T> out("out", count);
  call(out.data());
  return {tolerance, {out.take()}};
}

// An input that begins on no vector's boundary and ends with its last element, so that a sanitizer
// sees any read past it.
template <typename T>
class OddInput {
 public:
  OddInput() : cells_(1) {}
  OddInput(const std::vector<T>& values) : cells_(values.size() + 1) {  // NOLINT: converts
    std::copy(values.begin(), values.end(), begin());
  }
  T* data() { return cells_.data() + 1; }
  const T* data() const { return cells_.data() + 1; }
  auto begin() { return cells_.begin() + 1; }
  auto end() { return cells_.end(); }
  auto begin() const { return cells_.begin() + 1; }
  auto end() const { return cells_.end(); }
  T& operator[](int64_t i) { return data()[i]; }
  int64_t size() const { return static_cast<int64_t>(cells_.size()) - 1; }
  bool empty() const { return size() == 0; }

 private:
  std::vector<T> cells_;
};

// An input that may be left out: empty is null.
template <typename Cells>
auto* or_null(const Cells& cells) {
  return cells.empty() ? nullptr : cells.data();
}

// Part `index` of `count` equal ones: one image, one row.
template <typename Cells>
Cells part_of(const Cells& cells, int64_t index, int64_t count) {
  const auto size = static_cast<int64_t>(cells.size()) / count;
  return std::vector(cells.begin() + index * size, cells.begin() + (index + 1) * size);
}

inline std::vector<float> normal_floats(int64_t count, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0.0f, scale);
  std::vector<float> cells(count);
  for (float& cell : cells) cell = distribution(random);
  return cells;
}

// Where a residual comes from, and the pointer to it. In the place of the output it is put there.
enum class Residual { kNone, kOther, kInput, kOutput };
template <typename T>
const T* residual_of(Residual from, const auto& other, const T* input, T* output) {
  if (from == Residual::kOutput) std::copy(other.begin(), other.end(), output);
  return from == Residual::kNone    ? nullptr
         : from == Residual::kOther ? other.data()
         : from == Residual::kInput ? input
                                    : output;
}

// By the number of its terms, so that a product is of order 1.
inline float fan_in(int64_t terms) { return 1 / std::sqrt(static_cast<float>(terms)); }

// Whatever is not 0 takes part, not only 1.
inline std::vector<uint8_t> random_mask(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> cells(count);
  for (uint8_t& cell : cells) cell = random() % 4 != 0 ? 1 + random() % 255 : 0;
  return cells;
}

// Channels next to each other, pixels `stride` apart, NaN in between; ends with the last channel,
// so that a sanitizer sees any read past it.
template <typename T>
std::vector<T> random_map(std::mt19937& random, int64_t pixels, int64_t channels, int64_t stride,
                          float scale) {
  if (pixels == 0) return {};
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<T> cells((pixels - 1) * stride + channels, from_float<T>(kNan));
  for (int64_t n = 0; n < pixels; ++n)
    for (int64_t c = 0; c < channels; ++c) cells[n * stride + c] = from_float<T>(normal(random));
  return cells;
}

template <typename Cell>
std::vector<Cell> random_cells(std::mt19937& random, int64_t count, float scale = 1) {
  return random_map<Cell>(random, 1, count, count, scale);
}

template <typename T>
std::vector<float> widen(const std::vector<T>& cells) {
  std::vector<float> wide;
  for (const T& cell : cells) wide.push_back(to_float(cell));
  return wide;
}

}  // namespace qna::kernels::testing
