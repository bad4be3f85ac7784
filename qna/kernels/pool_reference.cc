#include <cmath>
#include <limits>
#include <vector>

#include "qna/kernels/convolution_reference.h"
#include "qna/kernels/pool.h"

namespace qna::kernels {

void max_pool_reference(const PoolArgs& args, Runtime&) {
  const int64_t features = args.shape.in_features;
  for (int64_t n = 0; n < args.shape.windows(); ++n) {
    std::vector<float> most(features, -std::numeric_limits<float>::infinity());
    bool any = false;
    for_each_tap(args.shape, n, [&](int64_t, int64_t pixel) {
      if (args.mask != nullptr && args.mask[pixel] == 0) return;
      any = true;
      for (int64_t c = 0; c < features; ++c) {
        const float value = args.x[pixel * features + c];
        if (value > most[c] || std::isnan(value)) most[c] = value;
      }
    });
    for (int64_t c = 0; c < features; ++c) args.y[n * features + c] = any ? most[c] : 0.0f;
  }
}

void average_pool_reference(const PoolArgs& args, Runtime&) {
  const int64_t features = args.shape.in_features;
  const auto taps = static_cast<double>(args.shape.taps());
  for (int64_t n = 0; n < args.shape.windows(); ++n) {
    std::vector<double> sum(features, 0.0);
    for_each_tap(args.shape, n, [&](int64_t, int64_t pixel) {
      for (int64_t c = 0; c < features; ++c) sum[c] += args.x[pixel * features + c];
    });
    for (int64_t c = 0; c < features; ++c) {
      args.y[n * features + c] = static_cast<float>(sum[c] / taps);
    }
  }
}

}  // namespace qna::kernels
