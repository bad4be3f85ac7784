#include "qna/kernels/instance_norm.h"

#include "qna/kernels/dense_reference.h"

namespace qna::kernels {

void instance_norm_reference(const InstanceNormArgs& args, Runtime&) {
  for (int64_t image = 0; image < args.batch; ++image)
    for (int64_t c = 0; c < args.features; ++c) {
      const int64_t first = image * args.positions * args.features + c;
      std::vector<double> values(args.positions);
      for (int64_t n = 0; n < args.positions; ++n) values[n] = args.x[first + n * args.features];
      values = normalized(values, {.wanted = true, .epsilon = args.epsilon});
      const double weight = args.weight == nullptr ? 1 : args.weight[c];
      const double bias = args.bias == nullptr ? 0 : args.bias[c];
      for (int64_t n = 0; n < args.positions; ++n) {
        args.y[first + n * args.features] =
            static_cast<float>(activate(values[n] * weight + bias, args.activation));
      }
    }
}

}  // namespace qna::kernels
