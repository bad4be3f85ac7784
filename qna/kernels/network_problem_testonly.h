// What the tests of the kernels for whole networks have in common: every implementation against the
// reference, any number of workers, images alone and in a batch.
#pragma once

#include <vector>

#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline constexpr Activation kActivations[] = {Activation::kNone, Activation::kGeluTanh,
                                              Activation::kGelu, Activation::kRelu,
                                              Activation::kSilu};

inline const Implementation& reference() { return implementations().front(); }

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
  const T* or_null() const { return size() == 0 ? nullptr : data(); }
  auto begin() { return cells_.begin() + 1; }
  auto end() { return cells_.end(); }
  T& operator[](int64_t i) { return data()[i]; }
  int64_t size() const { return static_cast<int64_t>(cells_.size()) - 1; }
  // Part `index` of equal ones, `count` long.
  OddInput part(int64_t index, int64_t count) const {
    return std::vector<T>(data() + index * count, data() + (index + 1) * count);
  }

 private:
  std::vector<T> cells_;
};

inline OddInput<uint8_t> random_mask(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> cells(count);
  for (uint8_t& cell : cells) cell = random() % 4 != 0 ? 1 + random() % 255 : 0;
  return cells;
}

// A problem has run(implementation, workers): all it computes, one element behind the other.
template <typename Problem>
void compare_all(const Problem& problem, double absolute, double relative = 0) {
  const std::vector<double> expected = problem.run(reference(), 1);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(fmt::format("{} {}", implementation->name, problem.text()));
    EXPECT_TRUE(near(problem.run(*implementation, 1), expected, absolute, relative));
  }
}

template <typename Problem>
void expect_same_bits_for_any_workers(const Problem& problem) {
  for (const Implementation* implementation : simd_implementations()) {
    const std::vector<double> one = problem.run(*implementation, 1);
    for (const int workers : {2, 3, 8}) {
      EXPECT_EQ(one, problem.run(*implementation, workers))
          << implementation->name << " " << workers << " workers, " << problem.text();
    }
  }
}

// The problem's image(b) is image b alone.
template <typename Problem>
void expect_same_bits_alone(const Problem& problem, int64_t batch) {
  for (const Implementation* implementation : simd_implementations()) {
    const std::vector<double> all = problem.run(*implementation, 2);
    const auto count = static_cast<int64_t>(all.size()) / batch;
    for (int64_t b = 0; b < batch; ++b) {
      const std::vector<double> part(all.begin() + b * count, all.begin() + (b + 1) * count);
      EXPECT_EQ(part, problem.image(b).run(*implementation, 1))
          << implementation->name << " image " << b << ", " << problem.text();
    }
  }
}

inline std::string text(const ConvolutionShape& s) {
  return fmt::format(
      "[batch {}, {} x {} x {}, kernel {} x {}, stride {} x {}, pad {} {}, dilation {} x {}, out "
      "{} x {}]",
      s.batch, s.height, s.width, s.in_features, s.kernel_h, s.kernel_w, s.stride_h, s.stride_w,
      s.pad_top, s.pad_left, s.dilation_h, s.dilation_w, s.out_height, s.out_width);
}

// With as many windows as begin inside the map and its padding, which is the same on all sides.
inline ConvolutionShape with_out_size(ConvolutionShape s) {
  const auto count = [](int64_t size, int64_t pad, int64_t kernel, int64_t stride,
                        int64_t dilation) {
    const int64_t reach = (kernel - 1) * dilation + 1;
    return std::max<int64_t>(0, size + 2 * pad - reach) / stride + 1;
  };
  s.out_height = count(s.height, s.pad_top, s.kernel_h, s.stride_h, s.dilation_h);
  s.out_width = count(s.width, s.pad_left, s.kernel_w, s.stride_w, s.dilation_w);
  return s;
}

// Strides, dilations, even windows, windows larger than the map, maps of one pixel, windows that
// see nothing of the map.
inline std::vector<ConvolutionShape> window_shapes(int64_t features) {
  std::vector<ConvolutionShape> shapes;
  struct Size {
    int64_t height, width;
  };
  int64_t round = 0;
  for (const Size map : {Size{1, 1}, {1, 6}, {5, 3}, {9, 14}})
    for (const Size kernel : {Size{1, 1}, {2, 2}, {3, 3}, {1, 4}, {5, 2}, {7, 7}})
      for (int64_t stride = 1; stride <= 3; ++stride)
        for (int64_t dilation = 1; dilation <= 2; ++dilation) {
          ConvolutionShape s{.batch = 1 + round % 3,
                             .height = map.height,
                             .width = map.width,
                             .in_features = features,
                             .kernel_h = kernel.height,
                             .kernel_w = kernel.width,
                             .stride_h = stride,
                             .stride_w = 1 + (stride + round) % 3,
                             .pad_top = round % 4 == 0 ? 0 : kernel.height / 2,
                             .pad_left = round % 5 == 0 ? kernel.width + 1 : kernel.width / 2,
                             .dilation_h = dilation,
                             .dilation_w = 1 + (dilation + round / 2) % 2};
          s = with_out_size(s);
          if (round % 7 == 0) s.out_height += 3, s.out_width += 2;  // windows beyond the map
          shapes.push_back(s);
          ++round;
        }
  return shapes;
}

}  // namespace qna::kernels::testing
