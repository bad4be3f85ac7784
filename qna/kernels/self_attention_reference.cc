#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "qna/kernels/self_attention.h"

namespace qna::kernels {

void self_attention_reference(const SelfAttentionArgs& args, Runtime&) {
  const int64_t features = args.heads * args.head_dim;
  const auto part = [&](int64_t pixel, int64_t which, int64_t head) {
    return args.qkv + (pixel * 3 + which) * features + head * args.head_dim;
  };
  for (int64_t b = 0; b < args.batch; ++b)
    for (int64_t i = 0; i < args.height * args.width; ++i)
      for (int64_t head = 0; head < args.heads; ++head) {
        const int64_t y = i / args.width, x = i % args.width;
        const int64_t top = y / args.window_h * args.window_h;
        const int64_t left = x / args.window_w * args.window_w;
        const int64_t bottom = std::min(args.height, top + args.window_h);
        const int64_t right = std::min(args.width, left + args.window_w);
        const int64_t image = b * args.height * args.width;
        const float* q = part(image + i, 0, head);
        std::vector<double> out(args.head_dim, 0.0);
        // Twice over the keys: the largest score, then the sums.
        double largest = -std::numeric_limits<double>::infinity();
        double total = 0;
        for (const bool summing : {false, true})
          for (int64_t ky = top; ky < bottom; ++ky)
            for (int64_t kx = left; kx < right; ++kx) {
              const int64_t key = image + ky * args.width + kx;
              if (args.mask != nullptr && args.mask[key] == 0) continue;
              double score = 0;
              for (int64_t c = 0; c < args.head_dim; ++c) {
                score += static_cast<double>(q[c]) * part(key, 1, head)[c];
              }
              score *= args.scale;
              if (args.bias != nullptr) {
                const int64_t row = head * (2 * args.bias_h - 1) + args.bias_h - 1 + ky - y;
                score += args.bias[row * (2 * args.bias_w - 1) + args.bias_w - 1 + kx - x];
              }
              if (!summing) {
                largest = std::max(largest, score);
                continue;
              }
              const double weight = std::exp(score - largest);
              total += weight;
              for (int64_t c = 0; c < args.head_dim; ++c) {
                out[c] += weight * part(key, 2, head)[c];
              }
            }
        for (int64_t c = 0; c < args.head_dim; ++c) {
          args.out[(image + i) * features + head * args.head_dim + c] =
              total == 0 ? 0.0f : static_cast<float>(out[c] / total);
        }
      }
}

}  // namespace qna::kernels
