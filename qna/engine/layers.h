// The parts that all networks share: tensors by name, products with folded norms, convolutions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qna/engine/model_file.h"
#include "qna/engine/worker.h"
#include "qna/kernels/convolution.h"
#include "qna/kernels/dense.h"
#include "qna/kernels/depthwise.h"

namespace qna::engine {

using Floats = std::vector<float>;

// The tensors of one part of a network, by the names they have inside it.
class Tensors {
 public:
  explicit Tensors(const ModelFile& file, kernels::WeightType weight_type, std::string prefix = "")
      : file_(file), weight_type_(weight_type), prefix_(std::move(prefix)) {}
  Tensors in(const std::string& part) const {
    return Tensors(file_, weight_type_, prefix_ + part + ".");
  }
  Tensors in(const std::string& part, size_t index) const;
  Floats get(const std::string& name) const;
  // As which the weights of products are to be packed.
  kernels::WeightType weight_type() const { return weight_type_; }

 private:
  const ModelFile& file_;
  kernels::WeightType weight_type_;
  std::string prefix_;
};

// LayerNorm's scale and shift, and its epsilon.
struct NormWeights {
  NormWeights(const Tensors& tensors, double epsilon);
  void run(const Map& x, float* y, Worker& worker) const;  // y may be x
  kernels::Norm kernel() const { return {.wanted = true, .epsilon = epsilon}; }
  Floats weight, bias;
  float epsilon;
};

// A product's weights [out, in] and bias [out] (or empty), to be packed. The kernels normalise
// without LayerNorm's scale g and shift s, which are linear: W (g x + s) + b = (W g) x + (W s + b).
struct Matrix {
  int64_t out, in;
  Floats weight;
  Floats bias = {};

  Matrix& fold_norm(const NormWeights& norm);
  Matrix& scale_rows(const Floats& scale);  // of the output; empty: none
  // BatchNorm behind it, whose statistics make it a scale and a shift. The matrix has no bias yet.
  Matrix& fold_batch_norm(const Tensors& norm);
  kernels::PackedWeights pack(kernels::WeightType type) const;
};
Matrix linear(const Tensors& tensors, int64_t out, int64_t in, bool bias = true);
// Rows `first` to `first + count` of a matrix.
Matrix rows_of(const Matrix& matrix, int64_t first, int64_t count);
// A convolution's weights [out, in, kh, kw] as a matrix over windows, [out, (kh, kw, in)].
Matrix window_matrix(const Floats& weight, int64_t out, int64_t in, int64_t kernel_h,
                     int64_t kernel_w);

// y = activation(window(x) W + b + residual). residual: like y, or null.
struct Convolution {
  kernels::ConvolutionShape shape;  // but for batch and sizes
  kernels::PackedWeights weights = {};
  kernels::Activation activation = kernels::Activation::kNone;
  kernels::Norm norm = {};

  // y has its size already.
  void run(const Map& x, const Map& y, Worker& worker, const float* residual = nullptr) const;
};
// 1 x 1 with a stride.
Convolution strided_product(const Matrix& matrix, kernels::WeightType type,
                            std::array<int64_t, 2> stride, kernels::Norm norm = {});

// A convolution of each feature by itself.
struct Depthwise {
  kernels::ConvolutionShape shape;  // but for batch and sizes
  Floats weight;                    // [taps, features]
  Floats bias = {};                 // or empty
  kernels::Activation activation = kernels::Activation::kNone;

  // y has its size already.
  void run(const Map& x, const Map& y, Worker& worker) const;
  size_t bytes() const { return (weight.size() + bias.size()) * sizeof(float); }
};
// Such a convolution's weights [features, 1, kh, kw] as it wants them.
Floats taps_first(const Floats& weight, int64_t features);

// Rows through a packed product.
struct DenseOptions {
  kernels::Norm norm = {};
  kernels::Activation activation = kernels::Activation::kNone;
  const float* residual = nullptr;
};
void dense(const float* x, int64_t rows, const kernels::PackedWeights& weights, float* y,
           Worker& worker, const DenseOptions& options = {});

}  // namespace qna::engine
