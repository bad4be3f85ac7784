#include "qna/engine/layers.h"

#include <fmt/format.h>

#include <cmath>

#include "qna/config/layers.h"
#include "qna/kernels/layer_norm.h"

namespace qna::engine {

Tensors Tensors::in(const std::string& part, size_t index) const {
  return in(fmt::format("{}.{}", part, index));
}

Floats Tensors::get(const std::string& name) const {
  return read_floats(file_.tensors().at(prefix_ + name), file_.origin());
}

NormWeights::NormWeights(const Tensors& tensors, double epsilon_in)
    : weight(tensors.get("weight")),
      bias(tensors.get("bias")),
      epsilon(static_cast<float>(epsilon_in)) {}

void NormWeights::run(const Map& x, float* y, Worker& worker) const {
  kernels::layer_norm({.rows = x.rows(),
                       .features = x.features,
                       .epsilon = epsilon,
                       .weight = weight.data(),
                       .bias = bias.data(),
                       .x = x.data,
                       .y = y},
                      worker.runtime);
}

Matrix& Matrix::fold_norm(const NormWeights& norm) {
  bias.resize(out, 0.0f);
  for (int64_t r = 0; r < out; ++r) {
    double shift = bias[r];
    float* row = weight.data() + r * in;
    for (int64_t c = 0; c < in; ++c) {
      shift += static_cast<double>(row[c]) * norm.bias[c];
      row[c] *= norm.weight[c];
    }
    bias[r] = static_cast<float>(shift);
  }
  return *this;
}

Matrix& Matrix::scale_rows(const Floats& scale) {
  if (scale.empty()) return *this;
  for (int64_t r = 0; r < out; ++r) {
    for (int64_t c = 0; c < in; ++c) weight[r * in + c] *= scale[r];
    if (!bias.empty()) bias[r] *= scale[r];
  }
  return *this;
}

// (x - mean) / sqrt(variance + epsilon) * weight + bias
Matrix& Matrix::fold_batch_norm(const Tensors& norm) {
  const Floats gain = norm.get("weight"), offset = norm.get("bias");
  const Floats mean = norm.get("running_mean"), variance = norm.get("running_var");
  Floats scale(out), shift(out);
  for (int64_t i = 0; i < out; ++i) {
    const double factor = gain[i] / std::sqrt(variance[i] + config::kTorchNormEpsilon);
    scale[i] = static_cast<float>(factor);
    shift[i] = static_cast<float>(offset[i] - mean[i] * factor);
  }
  scale_rows(scale).bias = shift;
  return *this;
}

kernels::PackedWeights Matrix::pack(kernels::WeightType type) const {
  ThreadRuntime runtime;
  return kernels::pack_matrix({.inner = in,
                               .columns = out,
                               .weight = weight.data(),
                               .inner_stride = 1,
                               .column_stride = in,
                               .bias = bias.empty() ? nullptr : bias.data(),
                               .type = type},
                              runtime);
}

Matrix linear(const Tensors& tensors, int64_t out, int64_t in, bool bias) {
  return {out, in, tensors.get("weight"), bias ? tensors.get("bias") : Floats{}};
}

Matrix rows_of(const Matrix& m, int64_t first, int64_t count) {
  const auto cut = [&](const Floats& from, int64_t row) {
    if (from.empty()) return Floats{};
    return Floats(from.begin() + first * row, from.begin() + (first + count) * row);
  };
  return {count, m.in, cut(m.weight, m.in), cut(m.bias, 1)};
}

Matrix window_matrix(const Floats& weight, int64_t out, int64_t in, int64_t kernel_h,
                     int64_t kernel_w) {
  const int64_t taps = kernel_h * kernel_w;
  Matrix matrix{out, taps * in, Floats(weight.size())};
  for (int64_t o = 0; o < out; ++o)
    for (int64_t c = 0; c < in; ++c)
      for (int64_t t = 0; t < taps; ++t) {
        matrix.weight[(o * taps + t) * in + c] = weight[(o * in + c) * taps + t];
      }
  return matrix;
}

namespace {
kernels::ConvolutionShape between(kernels::ConvolutionShape shape, const Map& x, const Map& y) {
  shape.batch = x.batch;
  shape.height = x.height;
  shape.width = x.width;
  shape.in_features = x.features;
  shape.out_height = y.height;
  shape.out_width = y.width;
  return shape;
}
}  // namespace

void Convolution::run(const Map& x, const Map& y, Worker& worker, const float* residual) const {
  kernels::convolution({.shape = between(shape, x, y),
                        .x = x.data,
                        .norm = norm,
                        .weights = &weights,
                        .activation = activation,
                        .residual = residual,
                        .y = y.data},
                       worker.runtime);
}

Floats taps_first(const Floats& weight, int64_t features) {
  const int64_t taps = static_cast<int64_t>(weight.size()) / features;
  Floats turned(weight.size());
  for (int64_t c = 0; c < features; ++c)
    for (int64_t t = 0; t < taps; ++t) turned[t * features + c] = weight[c * taps + t];
  return turned;
}

void Depthwise::run(const Map& x, const Map& y, Worker& worker) const {
  kernels::depthwise({.shape = between(shape, x, y),
                      .x = x.data,
                      .weight = weight.data(),
                      .bias = bias.empty() ? nullptr : bias.data(),
                      .activation = activation,
                      .y = y.data},
                     worker.runtime);
}

Convolution strided_product(const Matrix& matrix, kernels::WeightType type,
                            std::array<int64_t, 2> stride, kernels::Norm norm) {
  return {.shape = {.stride_h = stride[0], .stride_w = stride[1]},
          .weights = matrix.pack(type),
          .norm = norm};
}

void dense(const float* x, int64_t rows, const kernels::PackedWeights& weights, float* y,
           Worker& worker, const DenseOptions& options) {
  kernels::dense({.rows = rows,
                  .x = x,
                  .norm = options.norm,
                  .weights = &weights,
                  .activation = options.activation,
                  .residual = options.residual,
                  .y = y},
                 worker.runtime);
}

}  // namespace qna::engine
