#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "qna/kernels/window_self_attention.h"

namespace qna::kernels {

template <typename T>
void window_self_attention_reference(const WindowSelfAttentionArgs<T>& args, Runtime&) {
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
        const T* q = part(image + i, 0, head);
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
              total == 0 ? T{0} : static_cast<T>(out[c] / total);
        }
      }
}

template <typename T>
void window_self_attention_backward_reference(const WindowSelfAttentionBackwardArgs<T>& backward,
                                              Runtime&) {
  const WindowSelfAttentionArgs<T>& args = backward.forward;
  const int64_t features = args.heads * args.head_dim;
  const int64_t pixels = args.batch * args.height * args.width;
  const int64_t table_row = 2 * args.bias_w - 1;
  std::vector<double> grad_qkv(pixels * 3 * features, 0.0);
  std::vector<double> grad_bias(
      args.bias == nullptr ? 0 : args.heads * (2 * args.bias_h - 1) * table_row, 0.0);
  const auto place = [&](int64_t pixel, int64_t which, int64_t head) {
    return (pixel * 3 + which) * features + head * args.head_dim;
  };
  for (int64_t pixel = 0; pixel < pixels; ++pixel)
    for (int64_t head = 0; head < args.heads; ++head) {
      const int64_t image = pixel / (args.height * args.width) * args.height * args.width;
      const int64_t y = (pixel - image) / args.width, x = (pixel - image) % args.width;
      const int64_t top = y / args.window_h * args.window_h;
      const int64_t left = x / args.window_w * args.window_w;
      struct Key {
        int64_t pixel, bias;
        double score, weight;
      };
      std::vector<Key> keys;
      double largest = -std::numeric_limits<double>::infinity();
      for (int64_t ky = top; ky < std::min(args.height, top + args.window_h); ++ky)
        for (int64_t kx = left; kx < std::min(args.width, left + args.window_w); ++kx) {
          const int64_t row = head * (2 * args.bias_h - 1) + args.bias_h - 1 + ky - y;
          Key key{image + ky * args.width + kx, row * table_row + args.bias_w - 1 + kx - x, 0, 0};
          if (args.mask != nullptr && args.mask[key.pixel] == 0) continue;
          for (int64_t c = 0; c < args.head_dim; ++c) {
            key.score += static_cast<double>(args.qkv[place(pixel, 0, head) + c]) *
                         args.qkv[place(key.pixel, 1, head) + c];
          }
          key.score *= args.scale;
          if (args.bias != nullptr) key.score += args.bias[key.bias];
          largest = std::max(largest, key.score);
          keys.push_back(key);
        }
      double total = 0;
      for (Key& key : keys) total += key.weight = std::exp(key.score - largest);
      // ds = w (dw - sum w dw), where dw = <dout, v>
      const T* grad = backward.grad_out + pixel * features + head * args.head_dim;
      double mean = 0;
      for (Key& key : keys) {
        key.weight /= total;
        key.score = 0;  // from here on its gradient
        for (int64_t c = 0; c < args.head_dim; ++c) {
          key.score += static_cast<double>(grad[c]) * args.qkv[place(key.pixel, 2, head) + c];
        }
        mean += key.weight * key.score;
      }
      for (const Key& key : keys) {
        const double grad_score = key.weight * (key.score - mean);
        if (args.bias != nullptr) grad_bias[key.bias] += grad_score;
        for (int64_t c = 0; c < args.head_dim; ++c) {
          grad_qkv[place(pixel, 0, head) + c] +=
              args.scale * grad_score * args.qkv[place(key.pixel, 1, head) + c];
          grad_qkv[place(key.pixel, 1, head) + c] +=
              args.scale * grad_score * args.qkv[place(pixel, 0, head) + c];
          grad_qkv[place(key.pixel, 2, head) + c] += key.weight * grad[c];
        }
      }
    }
  for (size_t i = 0; i < grad_qkv.size(); ++i) {
    backward.grad_qkv[i] = static_cast<T>(grad_qkv[i]);
  }
  for (size_t i = 0; i < grad_bias.size(); ++i) {
    backward.grad_bias[i] = static_cast<T>(grad_bias[i]);
  }
}

template void window_self_attention_reference(const WindowSelfAttentionArgs<float>&, Runtime&);
template void window_self_attention_reference(const WindowSelfAttentionArgs<double>&, Runtime&);
template void window_self_attention_backward_reference(
    const WindowSelfAttentionBackwardArgs<float>&, Runtime&);
template void window_self_attention_backward_reference(
    const WindowSelfAttentionBackwardArgs<double>&, Runtime&);

}  // namespace qna::kernels
