#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "qna/kernels/multihead_attention.h"

namespace qna::kernels {

void multihead_attention_reference(const MultiheadAttentionArgs& args, Runtime&) {
  const int64_t dim = args.head_dim;
  for (int64_t query = 0; query < args.batch * args.queries; ++query) {
    const int64_t first_key = query / args.queries * args.keys;
    const auto is_key = [&](int64_t m) {
      return args.mask == nullptr || args.mask[first_key + m] != 0;
    };
    std::vector<double> mean(args.keys, 0.0);  // over the heads
    for (int64_t head = 0; head < args.heads; ++head) {
      const float* q = args.q + query * args.q_stride + head * dim;
      std::vector<double> weights(args.keys, 0.0);  // scores at first
      double largest = -std::numeric_limits<double>::infinity();
      for (int64_t m = 0; m < args.keys; ++m) {
        if (!is_key(m)) continue;
        const float* k = args.k + (first_key + m) * args.k_stride + head * dim;
        for (int64_t c = 0; c < dim; ++c) weights[m] += static_cast<double>(q[c]) * k[c];
        weights[m] *= args.scale;
        largest = std::max(largest, weights[m]);
      }
      double total = 0;
      for (int64_t m = 0; m < args.keys; ++m) {
        if (is_key(m)) total += weights[m] = std::exp(weights[m] - largest);
      }
      std::vector<double> out(dim, 0.0);
      for (int64_t m = 0; m < args.keys; ++m) {
        if (!is_key(m)) continue;
        const float* v = args.v + (first_key + m) * args.v_stride + head * dim;
        for (int64_t c = 0; c < dim; ++c) out[c] += weights[m] / total * v[c];
        mean[m] += weights[m] / total / static_cast<double>(args.heads);
      }
      for (int64_t c = 0; c < dim; ++c) {
        args.out[(query * args.heads + head) * dim + c] = static_cast<float>(out[c]);
      }
    }
    if (args.weights == nullptr) continue;
    std::copy(mean.begin(), mean.end(), args.weights + query * args.keys);
  }
}

}  // namespace qna::kernels
