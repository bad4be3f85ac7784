#include "qna/image/resize_weights.h"

#include <algorithm>
#include <cmath>

namespace qna::image {
namespace {

double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

// R. Keys, "Cubic convolution interpolation for digital image processing", 1981, equation 4 in
// Horner's form. The order of the operations is Pillow's, for the same bits.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

}  // namespace

ResizeWeights resize_weights(int64_t in, double from, double to, int64_t out, Filter filter) {
  const auto curve = filter == Filter::kBicubic ? &cubic : &triangle;
  const double reach = filter == Filter::kBicubic ? 2.0 : 1.0;
  // Pillow keeps its box in float32.
  const float start = static_cast<float>(from);
  const double scale =
      static_cast<double>(static_cast<float>(to) - start) / static_cast<double>(out);
  const double stretch = std::max(scale, 1.0);  // shrinking: the filter covers as many more pixels
  const double support = reach * stretch;

  ResizeWeights result;
  result.stride = std::min(static_cast<int64_t>(std::ceil(support)) * 2 + 1, in);
  result.spans.resize(out);
  result.weights.resize(out * result.stride);
  std::vector<double> exact(result.stride);
  for (int64_t i = 0; i < out; ++i) {
    const double center = start + (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(center + support + 0.5), in);
    double sum = 0;
    for (int64_t j = first; j < end; ++j) {
      const double weight = curve((static_cast<double>(j) - center + 0.5) * (1.0 / stretch));
      exact[j - first] = weight;
      sum += weight;
    }
    result.spans[i] = {first, end - first};
    for (int64_t j = 0; j < end - first; ++j) {
      const double weight = exact[j] / sum * (1 << kWeightBits);
      result.weights[i * result.stride + j] =
          static_cast<int32_t>(weight + (weight < 0 ? -0.5 : 0.5));
    }
  }
  return result;
}

}  // namespace qna::image
