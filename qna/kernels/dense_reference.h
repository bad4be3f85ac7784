// Rows in double, for the references.
#pragma once

#include <cmath>
#include <vector>

#include "qna/base/half.h"
#include "qna/kernels/dense.h"

namespace qna::kernels {

inline double activate(double x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGelu:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kRelu:
      return x < 0 ? 0 : x;  // NaN stays NaN
    case Activation::kRelu6:
      return x < 0 ? 0 : x > 6 ? 6 : x;
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

inline std::vector<double> normalized(std::vector<double> row, const Norm& norm) {
  if (!norm.wanted) return row;
  const auto count = static_cast<double>(row.size());
  double mean = 0;
  double variance = 0;
  for (const double value : row) mean += value / count;
  for (const double value : row) variance += (value - mean) * (value - mean) / count;
  for (double& value : row) value = (value - mean) / std::sqrt(variance + norm.epsilon);
  return row;
}

inline std::vector<double> read_row(const float* x, int64_t count, const Norm& norm) {
  return normalized(std::vector<double>(x, x + count), norm);
}

// What is left of a weight. The references keep it in float32 all the same.
inline float as_kept(float weight, WeightType type) {
  return type == WeightType::kBFloat16 ? to_float(from_float<BFloat16>(weight)) : weight;
}

// row W + b, with W as pack_matrix_reference leaves it: [inner][columns], then the bias.
inline std::vector<double> multiply(const std::vector<double>& row, const PackedWeights& weights) {
  const auto* weight = static_cast<const float*>(weights.memory());
  const float* bias = weight + weights.inner * weights.columns;
  std::vector<double> out(bias, bias + weights.columns);
  for (int64_t k = 0; k < weights.inner; ++k)
    for (int64_t c = 0; c < weights.columns; ++c)
      out[c] += row[k] * weight[k * weights.columns + c];
  return out;
}

}  // namespace qna::kernels
