#include <cmath>
#include <vector>

#include "qna/kernels/sasa.h"

namespace qna::kernels {
namespace {

// Where element (pixel, head, dim) of a map is.
template <typename T>
T& at(const PixelMap<T>& map, int64_t pixel, int64_t head, int64_t dim) {
  const ValueLayout& layout = map.layout;
  return map
      .data[pixel * layout.pixel_stride + head * layout.head_stride + dim * layout.dim_stride];
}

// One window: which pixels it sees, and its attention.
template <typename T>
struct SasaWindow {
  const SasaArgs<T>& args;
  int64_t image, row, column;  // of the output

  int64_t index() const {
    return (image * args.shape.out_height() + row) * args.shape.out_width() + column;
  }

  // The pixel under a tap, or -1 where the tap takes no part.
  int64_t pixel(int64_t tap) const {
    return pixel_under_tap(args.shape, args.mask, image, row, column, tap);
  }

  // p[t]; all 0 where no tap takes part.
  void attention(int64_t head, std::vector<double>& p) const {
    const WindowShape& s = args.shape;
    double maximum = -INFINITY;
    for (int64_t t = 0; t < s.taps(); ++t) {
      const int64_t n = pixel(t);
      p[t] = -INFINITY;
      if (n < 0) continue;
      p[t] = args.bias == nullptr ? 0 : args.bias[t * s.heads + head];
      for (int64_t j = 0; j < s.head_dim; ++j) {
        p[t] += static_cast<double>(to_float(at(args.q, index(), head, j))) *
                to_float(at(args.k, n, head, j));
      }
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
};

template <typename T, typename Visit>
void for_each_window(const SasaArgs<T>& args, Visit visit) {
  for (int64_t b = 0; b < args.shape.batch; ++b)
    for (int64_t i = 0; i < args.shape.out_height(); ++i)
      for (int64_t j = 0; j < args.shape.out_width(); ++j) visit(SasaWindow<T>{args, b, i, j});
}

template <typename T>
void store(const PixelMap<T>& map, int64_t pixels, const WindowShape& s,
           const std::vector<double>& sums) {
  for (int64_t n = 0; n < pixels; ++n)
    for (int64_t head = 0; head < s.heads; ++head)
      for (int64_t j = 0; j < s.head_dim; ++j) {
        at(map, n, head, j) = from_double<T>(sums[(n * s.heads + head) * s.head_dim + j]);
      }
}

}  // namespace

template <typename T>
void sasa_forward_reference(const SasaArgs<T>& args, Runtime&) {
  const WindowShape& s = args.shape;
  std::vector<double> p(s.taps());
  for_each_window(args, [&](const SasaWindow<T>& window) {
    for (int64_t head = 0; head < s.heads; ++head) {
      window.attention(head, p);
      for (int64_t j = 0; j < s.head_dim; ++j) {
        double sum = 0;
        for (int64_t t = 0; t < s.taps(); ++t) {
          const int64_t n = window.pixel(t);
          if (n >= 0) sum += p[t] * to_float(at(args.v, n, head, j));
        }
        at(args.out, window.index(), head, j) = from_double<T>(sum);
      }
    }
  });
}

// With g[t] = <dout, v[n(t)]>:  ds = p (g - sum_t p g),  dbias = sum of ds over windows,
// dq = sum_t ds k[n(t)],  dk[n(t)] += ds q,  dv[n(t)] += p dout.
template <typename T>
void sasa_backward_reference(const SasaBackwardArgs<T>& backward, Runtime&) {
  const SasaArgs<T>& args = backward.forward;
  const WindowShape& s = args.shape;
  const int64_t pixels = s.batch * s.height * s.width;
  const int64_t windows = s.batch * s.out_height() * s.out_width();
  std::vector<double> grad_q(windows * s.features(), 0.0);
  std::vector<double> grad_k(pixels * s.features(), 0.0);
  std::vector<double> grad_v(pixels * s.features(), 0.0);
  std::vector<double> grad_bias(s.taps() * s.heads, 0.0);
  std::vector<double> p(s.taps());
  std::vector<double> g(s.taps());
  for_each_window(args, [&](const SasaWindow<T>& window) {
    for (int64_t head = 0; head < s.heads; ++head) {
      window.attention(head, p);
      double mean = 0;  // sum_t p g
      for (int64_t t = 0; t < s.taps(); ++t) {
        const int64_t n = window.pixel(t);
        g[t] = 0;
        if (n < 0) continue;
        for (int64_t j = 0; j < s.head_dim; ++j) {
          const double dout = to_float(at(backward.grad_out, window.index(), head, j));
          g[t] += dout * to_float(at(args.v, n, head, j));
          grad_v[(n * s.heads + head) * s.head_dim + j] += p[t] * dout;
        }
        mean += p[t] * g[t];
      }
      for (int64_t t = 0; t < s.taps(); ++t) {
        const int64_t n = window.pixel(t);
        if (n < 0) continue;
        const double ds = p[t] * (g[t] - mean);
        grad_bias[t * s.heads + head] += ds;
        for (int64_t j = 0; j < s.head_dim; ++j) {
          grad_q[(window.index() * s.heads + head) * s.head_dim + j] +=
              ds * to_float(at(args.k, n, head, j));
          grad_k[(n * s.heads + head) * s.head_dim + j] +=
              ds * to_float(at(args.q, window.index(), head, j));
        }
      }
    }
  });
  store(backward.grad_q, windows, s, grad_q);
  store(backward.grad_k, pixels, s, grad_k);
  store(backward.grad_v, pixels, s, grad_v);
  for (int64_t c = 0; c < s.taps() * s.heads; ++c) {
    backward.grad_bias[c] = static_cast<Table<T>>(grad_bias[c]);
  }
}

#define QNA_INSTANTIATE(T)                                               \
  template void sasa_forward_reference<T>(const SasaArgs<T>&, Runtime&); \
  template void sasa_backward_reference<T>(const SasaBackwardArgs<T>&, Runtime&);
QNA_INSTANTIATE(float)
QNA_INSTANTIATE(double)
QNA_INSTANTIATE(BFloat16)
QNA_INSTANTIATE(Float16)
#undef QNA_INSTANTIATE

}  // namespace qna::kernels
