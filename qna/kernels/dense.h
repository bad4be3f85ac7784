// Products of rows with a weight matrix, with what stands before and behind them in a transformer
// block done on rows that are still in cache:
//   dense:  y = residual + activation(norm(x) W + b)
//   mlp:    z = x (+ mixed Wp, the end of the block's first half), y = z + act(norm(z) W1 + b1) W2
//   + b2
// norm(x) is (x - mean) / sqrt(variance + epsilon) over a row. The learned scale and shift behind a
// LayerNorm are linear, so they belong into W and b, and so does a scale of the output.
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"
#include "qna/kernels/packed_weights.h"

namespace qna::kernels {

enum class Activation {
  kNone,
  kGeluTanh,  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kGelu,      // x / 2 (1 + erf(x / sqrt 2))
  kRelu,
  kRelu6,  // at least 0, at most 6
  kSilu,   // x / (1 + exp(-x))
};

// W [inner, columns]: element (k, c) is weight[k * inner_stride + c * column_stride].
struct MatrixArgs {
  int64_t inner;
  int64_t columns;
  const float* weight;
  int64_t inner_stride;
  int64_t column_stride;
  const float* bias;                       // [columns] or null
  WeightType type = WeightType::kFloat32;  // as which the weights are kept
};

struct Norm {
  bool wanted = false;
  float epsilon = 1e-6f;
};

struct DenseArgs {
  int64_t rows;
  const float* x;  // [rows, inner]
  Norm norm = {};
  const PackedWeights* weights;  // by pack_matrix
  Activation activation = Activation::kNone;
  const float* residual = nullptr;  // [rows, columns] or null; may be y
  float* y;                         // [rows, columns]
};

struct MlpArgs {
  int64_t rows;
  const float* x;                          // [rows, features]
  const float* mixed = nullptr;            // [rows, inner of project]
  const PackedWeights* project = nullptr;  // to features; null: z = x
  Norm norm = {.wanted = true};
  const PackedWeights* expand;  // features -> hidden
  Activation activation = Activation::kGeluTanh;
  const PackedWeights* contract;  // hidden -> features
  float* y;                       // [rows, features]; may be x
};

PackedWeights pack_matrix_reference(const MatrixArgs& args, Runtime& runtime);
void dense_reference(const DenseArgs& args, Runtime& runtime);
void mlp_reference(const MlpArgs& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h), which must be the one that
// packed the weights.
PackedWeights pack_matrix(const MatrixArgs& args, Runtime& runtime);
void dense(const DenseArgs& args, Runtime& runtime);
void mlp(const MlpArgs& args, Runtime& runtime);

}  // namespace qna::kernels
