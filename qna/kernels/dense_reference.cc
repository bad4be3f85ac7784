#include "qna/kernels/dense_reference.h"

namespace qna::kernels {

PackedWeights pack_matrix_reference(const MatrixArgs& args, Runtime&) {
  PackedWeights packed((args.inner + 1) * args.columns * sizeof(float));
  packed.inner = args.inner;
  packed.columns = args.columns;
  packed.type = args.type;
  auto* out = static_cast<float*>(packed.memory());
  for (int64_t k = 0; k < args.inner; ++k)
    for (int64_t c = 0; c < args.columns; ++c) {
      *out++ = as_kept(args.weight[k * args.inner_stride + c * args.column_stride], args.type);
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
