#include "qna/kernels/layer_norm.h"

#include "qna/kernels/dense_reference.h"

namespace qna::kernels {

void layer_norm_reference(const LayerNormArgs& args, Runtime&) {
  const Norm norm{.wanted = true, .epsilon = args.epsilon};
  for (int64_t r = 0; r < args.rows; ++r) {
    const std::vector<double> row = read_row(args.x + r * args.features, args.features, norm);
    for (int64_t c = 0; c < args.features; ++c) {
      const double weight = args.weight == nullptr ? 1 : args.weight[c];
      const double bias = args.bias == nullptr ? 0 : args.bias[c];
      args.y[r * args.features + c] = static_cast<float>(row[c] * weight + bias);
    }
  }
}

void norm_mean_reference(const NormMeanArgs& args, Runtime&) {
  const Norm norm{.wanted = args.normalize, .epsilon = args.epsilon};
  for (int64_t image = 0; image < args.batch; ++image) {
    std::vector<double> sum(args.features, 0.0);
    int64_t count = 0;
    for (int64_t n = image * args.positions; n < (image + 1) * args.positions; ++n) {
      if (args.mask != nullptr && args.mask[n] == 0) continue;
      ++count;
      const std::vector<double> row = read_row(args.x + n * args.features, args.features, norm);
      for (int64_t c = 0; c < args.features; ++c) sum[c] += row[c];
    }
    for (int64_t c = 0; c < args.features; ++c) {
      const double weight = args.weight == nullptr ? 1 : args.weight[c];
      const double bias = args.bias == nullptr ? 0 : args.bias[c];
      const double mean = sum[c] / static_cast<double>(count);
      args.y[image * args.features + c] =
          count == 0 ? 0.0f : static_cast<float>(mean * weight + bias);
    }
  }
}

}  // namespace qna::kernels
