#include <vector>

#include "qna/kernels/convolution_reference.h"
#include "qna/kernels/dense_reference.h"
#include "qna/kernels/depthwise.h"

namespace qna::kernels {

void depthwise_reference(const DepthwiseArgs& args, Runtime&) {
  const int64_t features = args.shape.in_features;
  for (int64_t n = 0; n < args.shape.windows(); ++n) {
    std::vector<double> sum(features, 0.0);
    if (args.bias != nullptr) sum.assign(args.bias, args.bias + features);
    for_each_tap(args.shape, n, [&](int64_t tap, int64_t pixel) {
      for (int64_t c = 0; c < features; ++c) {
        sum[c] +=
            static_cast<double>(args.weight[tap * features + c]) * args.x[pixel * features + c];
      }
    });
    for (int64_t c = 0; c < features; ++c) {
      args.y[n * features + c] = static_cast<float>(activate(sum[c], args.activation));
    }
  }
}

}  // namespace qna::kernels
