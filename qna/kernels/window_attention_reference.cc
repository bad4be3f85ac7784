#include <algorithm>
#include <cmath>
#include <vector>

#include "qna/kernels/window_attention.h"

namespace qna::kernels {
namespace {

// One window: which pixels it sees, and its attention.
template <typename Args>
struct Window {
  const Args& args;
  int64_t image, row, column;  // of the output

  // The pixel under a tap, or -1 where the tap takes no part.
  int64_t pixel(int64_t tap) const {
    return pixel_under_tap(args.shape, args.mask, image, row, column, tap);
  }

  // p[t] = softmax over the window of score + bias; all 0 where no tap takes part.
  void attention(int64_t query, int64_t head, std::vector<double>& p) const {
    const WindowShape& s = args.shape;
    const int64_t channel = query * s.heads + head;
    // The scores' maximum goes first: beside a score of 1e38 a bias would vanish even in double.
    double top = -INFINITY;
    for (int64_t t = 0; t < s.taps(); ++t) {
      const int64_t n = pixel(t);
      p[t] = n < 0 ? -INFINITY : to_float(args.scores[n * args.score_stride + channel]);
      top = std::max(top, p[t]);
    }
    double maximum = -INFINITY;
    for (int64_t t = 0; t < s.taps(); ++t) {
      if (top != -INFINITY) p[t] -= top;
      if (args.bias != nullptr) p[t] += args.bias[t * s.scores() + channel];
      // A NaN becomes the maximum and so spreads over the window.
      if (!(p[t] <= maximum)) maximum = p[t];
    }
    double sum = 0;
    for (int64_t t = 0; t < s.taps(); ++t) {
      p[t] = maximum == -INFINITY ? 0 : std::exp(p[t] - maximum);
      sum += p[t];
    }
    for (int64_t t = 0; t < s.taps(); ++t) p[t] = sum == 0 ? 0 : p[t] / sum;
  }

  double tap_weight(int64_t tap, int64_t query, int64_t head) const {
    if (args.tap_weights == nullptr) return 1;
    return args.tap_weights[tap * args.shape.scores() + query * args.shape.heads + head];
  }

  // Index of this window's output (for one query, if separate), in pixels.
  int64_t out_pixel(int64_t query) const {
    const WindowShape& s = args.shape;
    const int64_t window = (image * s.out_height() + row) * s.out_width() + column;
    return s.separate ? window * s.queries + query : window;
  }
};

template <typename Args, typename Visit>
void for_each_window(const Args& args, Visit visit) {
  for (int64_t b = 0; b < args.shape.batch; ++b)
    for (int64_t i = 0; i < args.shape.out_height(); ++i)
      for (int64_t j = 0; j < args.shape.out_width(); ++j) visit(Window<Args>{args, b, i, j});
}

int64_t at(const ValueLayout& layout, int64_t pixel, int64_t head, int64_t dim) {
  return pixel * layout.pixel_stride + head * layout.head_stride + dim * layout.dim_stride;
}

}  // namespace

template <typename T>
void window_attention_forward_reference(const WindowAttentionArgs<T>& args, Runtime&) {
  const WindowShape& s = args.shape;
  std::vector<double> p(s.taps());
  std::vector<double> weights(s.taps());
  for_each_window(args, [&](const auto& window) {
    for (int64_t head = 0; head < s.heads; ++head) {
      std::fill(weights.begin(), weights.end(), 0.0);
      for (int64_t l = 0; l < s.queries; ++l) {
        window.attention(l, head, p);
        for (int64_t t = 0; t < s.taps(); ++t) {
          const double weight = window.tap_weight(t, l, head) * p[t];
          weights[t] = s.separate ? weight : weights[t] + weight;
        }
        if (!s.separate && l + 1 < s.queries) continue;
        for (int64_t j = 0; j < s.head_dim; ++j) {
          double z = 0;
          for (int64_t t = 0; t < s.taps(); ++t) {
            const int64_t n = window.pixel(t);
            if (n >= 0) z += weights[t] * to_float(args.values[at(args.value_layout, n, head, j)]);
          }
          args.out[at(args.out_layout, window.out_pixel(l), head, j)] = from_double<T>(z);
        }
      }
    }
  });
}

// With g[t] = <dz, value[n(t)]>:  dp = w g,  ds = p (dp - sum_t p dp),  db = sum of ds over
// windows, dw = sum of p g,  dvalue[n(t)] += w p dz.
template <typename T>
void window_attention_backward_reference(const WindowAttentionBackwardArgs<T>& args, Runtime&) {
  const WindowShape& s = args.shape;
  const int64_t pixels = s.batch * s.height * s.width;
  std::vector<double> grad_scores(pixels * s.scores(), 0.0);
  std::vector<double> grad_values(pixels * s.features(), 0.0);
  std::vector<double> grad_bias(s.taps() * s.scores(), 0.0);
  std::vector<double> grad_tap_weights(s.taps() * s.scores(), 0.0);
  std::vector<double> p(s.taps());
  std::vector<double> g(s.taps());
  for_each_window(args, [&](const auto& window) {
    for (int64_t head = 0; head < s.heads; ++head) {
      for (int64_t l = 0; l < s.queries; ++l) {
        window.attention(l, head, p);
        double mean = 0;  // sum_t p dp
        for (int64_t t = 0; t < s.taps(); ++t) {
          const int64_t n = window.pixel(t);
          g[t] = 0;
          if (n < 0) continue;
          const double w = window.tap_weight(t, l, head);
          for (int64_t j = 0; j < s.head_dim; ++j) {
            const double dz =
                to_float(args.grad_out[at(args.out_layout, window.out_pixel(l), head, j)]);
            g[t] += dz * to_float(args.values[at(args.value_layout, n, head, j)]);
            grad_values[(n * s.heads + head) * s.head_dim + j] += w * p[t] * dz;
          }
          mean += p[t] * w * g[t];
        }
        for (int64_t t = 0; t < s.taps(); ++t) {
          const int64_t n = window.pixel(t);
          if (n < 0) continue;
          const int64_t channel = l * s.heads + head;
          const double ds = p[t] * (window.tap_weight(t, l, head) * g[t] - mean);
          grad_scores[n * s.scores() + channel] += ds;
          grad_bias[t * s.scores() + channel] += ds;
          grad_tap_weights[t * s.scores() + channel] += p[t] * g[t];
        }
      }
    }
  });
  for (int64_t n = 0; n < pixels; ++n) {
    for (int64_t c = 0; c < s.scores(); ++c) {
      args.grad_scores[n * args.grad_score_stride + c] =
          from_double<T>(grad_scores[n * s.scores() + c]);
    }
    for (int64_t head = 0; head < s.heads; ++head)
      for (int64_t j = 0; j < s.head_dim; ++j) {
        args.grad_values[at(args.grad_value_layout, n, head, j)] =
            from_double<T>(grad_values[(n * s.heads + head) * s.head_dim + j]);
      }
  }
  for (int64_t c = 0; c < s.taps() * s.scores(); ++c) {
    args.grad_bias[c] = static_cast<Table<T>>(grad_bias[c]);
    args.grad_tap_weights[c] = static_cast<Table<T>>(grad_tap_weights[c]);
  }
}

#define QNA_INSTANTIATE(T)                                                                      \
  template void window_attention_forward_reference<T>(const WindowAttentionArgs<T>&, Runtime&); \
  template void window_attention_backward_reference<T>(const WindowAttentionBackwardArgs<T>&,   \
                                                       Runtime&);
QNA_INSTANTIATE(float)
QNA_INSTANTIATE(double)
QNA_INSTANTIATE(BFloat16)
QNA_INSTANTIATE(Float16)
#undef QNA_INSTANTIATE

}  // namespace qna::kernels
