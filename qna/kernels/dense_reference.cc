#include <cmath>
#include <vector>

#include "qna/kernels/dense.h"

namespace qna::kernels {
namespace {

double activate(double x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGelu:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kRelu:
      return x < 0 ? 0 : x;  // NaN stays NaN
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

std::vector<double> normalized(std::vector<double> row, const Norm& norm) {
  if (!norm.wanted) return row;
  const auto count = static_cast<double>(row.size());
  double mean = 0;
  double variance = 0;
  for (const double value : row) mean += value / count;
  for (const double value : row) variance += (value - mean) * (value - mean) / count;
  for (double& value : row) value = (value - mean) / std::sqrt(variance + norm.epsilon);
  return row;
}

std::vector<double> read_row(const float* x, int64_t count, const Norm& norm) {
  return normalized(std::vector<double>(x, x + count), norm);
}

// row W + b, with W as pack_matrix_reference leaves it: [inner][columns], then the bias.
std::vector<double> multiply(const std::vector<double>& row, const PackedWeights& weights) {
  const auto* weight = static_cast<const float*>(weights.memory());
  const float* bias = weight + weights.inner * weights.columns;
  std::vector<double> out(bias, bias + weights.columns);
  for (int64_t k = 0; k < weights.inner; ++k)
    for (int64_t c = 0; c < weights.columns; ++c)
      out[c] += row[k] * weight[k * weights.columns + c];
  return out;
}

}  // namespace

PackedWeights pack_matrix_reference(const MatrixArgs& args, Runtime&) {
  PackedWeights packed((args.inner + 1) * args.columns * sizeof(float));
  packed.inner = args.inner;
  packed.columns = args.columns;
  auto* out = static_cast<float*>(packed.memory());
  for (int64_t k = 0; k < args.inner; ++k)
    for (int64_t c = 0; c < args.columns; ++c) {
      *out++ = args.weight[k * args.inner_stride + c * args.column_stride];
    }
  for (int64_t c = 0; c < args.columns; ++c) *out++ = args.bias == nullptr ? 0.0f : args.bias[c];
  return packed;
}

void dense_reference(const DenseArgs& args, Runtime&) {
  const PackedWeights& weights = *args.weights;
  for (int64_t r = 0; r < args.rows; ++r) {
    const std::vector<double> y =
        multiply(read_row(args.x + r * weights.inner, weights.inner, args.norm), weights);
    for (int64_t c = 0; c < weights.columns; ++c) {
      const int64_t at = r * weights.columns + c;
      const double residual = args.residual == nullptr ? 0 : args.residual[at];
      args.y[at] = static_cast<float>(residual + activate(y[c], args.activation));
    }
  }
}

void mlp_reference(const MlpArgs& args, Runtime&) {
  const int64_t features = args.expand->inner;
  for (int64_t r = 0; r < args.rows; ++r) {
    std::vector<double> z = read_row(args.x + r * features, features, {});
    if (args.project != nullptr) {
      const int64_t inner = args.project->inner;
      const std::vector<double> mixed =
          multiply(read_row(args.mixed + r * inner, inner, {}), *args.project);
      for (int64_t c = 0; c < features; ++c) z[c] += mixed[c];
    }
    std::vector<double> hidden = multiply(normalized(z, args.norm), *args.expand);
    for (double& value : hidden) value = activate(value, args.activation);
    const std::vector<double> y = multiply(hidden, *args.contract);
    for (int64_t c = 0; c < features; ++c) {
      args.y[r * features + c] = static_cast<float>(z[c] + y[c]);
    }
  }
}

}  // namespace qna::kernels
