#include "qna/kernels/convolution_reference.h"

#include <algorithm>

#include "qna/kernels/dense_reference.h"

namespace qna::kernels {

void convolution_reference(const ConvolutionArgs& args, Runtime&) {
  const ConvolutionShape& s = args.shape;
  const PackedWeights& weights = *args.weights;
  for (int64_t n = 0; n < s.windows(); ++n) {
    std::vector<double> row(weights.inner, 0.0);  // [taps, in]
    for_each_tap(s, n, [&](int64_t tap, int64_t pixel) {
      std::copy_n(args.x + pixel * s.in_features, s.in_features, row.begin() + tap * s.in_features);
    });
    const std::vector<double> y = multiply(normalized(row, args.norm), weights);
    for (int64_t c = 0; c < weights.columns; ++c) {
      const int64_t at = n * weights.columns + c;
      const double residual = args.residual == nullptr ? 0 : args.residual[at];
      args.y[at] = static_cast<float>(activate(y[c] + residual, args.activation));
    }
  }
}

}  // namespace qna::kernels
