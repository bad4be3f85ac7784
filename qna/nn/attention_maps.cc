#include "qna/nn/attention_maps.h"
#include <torch/nn/functional/padding.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "qna/base/error.h"

namespace qna::nn {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

Tensor to_compute_type(const Tensor& tensor) {
  return tensor.scalar_type() == torch::kDouble ? tensor : tensor.to(torch::kFloat);
}

// The windows whose tap lies inside the map, along one axis, and where it lies.
struct Span {
  int64_t first;     // window
  int64_t count;     // of windows
  int64_t position;  // of the first one's tap
  int64_t step;      // from one position to the next

  Tensor of_windows(const Tensor& grid, int64_t axis) const {
    return grid.narrow(axis, first, count);
  }
  Tensor of_map(const Tensor& map, int64_t axis) const {
    return map.slice(axis, position, position + (count - 1) * step + 1, step);
  }
};

Span span_of(int64_t tap, int64_t windows, int64_t size, int64_t step, int64_t padding,
             int64_t dilation) {
  const int64_t offset = tap * dilation - padding;  // of the tap in window 0
  const int64_t first = offset >= 0 ? 0 : (-offset + step - 1) / step;
  const int64_t last = offset >= size ? -1 : std::min(windows - 1, (size - 1 - offset) / step);
  return {first, last - first + 1, offset + first * step, step};
}

// The softmax of every window, one tap at a time.
class WindowSoftmax {
 public:
  WindowSoftmax(const Tensor& x, const ops::LayerParameters& parameters,
                const ops::WindowGeometry& geometry, int64_t every)
      : shape_(ops::layer_shape(x, parameters, std::nullopt, geometry, /*upsample=*/1)),
        rows_((shape_.out_height() + every - 1) / every),
        columns_((shape_.out_width() + every - 1) / every),
        every_(every),
        scores_(torch::einsum("bhwc,cln->bhwln", {to_compute_type(x),
                                                  parameters.score_weight.to(to_compute_type(x))})),
        bias_(table(parameters.bias, 0)),
        scale_(table(parameters.tap_weights, 1)),
        maximum_(windows(kMinusInfinity)),
        sum_(windows(0)) {
    for_each_tap([&](const Tap& tap) {
      const Tensor top = tap.on_windows(maximum_);
      top.copy_(torch::maximum(top, score(tap)));
    });
    for_each_tap([&](const Tap& tap) { tap.on_windows(sum_).add_(exponential(tap)); });
  }

  struct Tap {
    int64_t y, x;  // in the window
    Span rows, columns;

    Tensor on_windows(const Tensor& grid) const {  // grid [B, rows, columns, ...]
      return columns.of_windows(rows.of_windows(grid, 1), 2);
    }
    Tensor on_map(const Tensor& map) const {  // map [B, H, W, ...]
      return columns.of_map(rows.of_map(map, 1), 2);
    }
  };

  // Every tap, with the windows in which it lies inside the map; none where there are none.
  template <typename Visit>
  void for_each_tap(Visit visit) const {
    const kernels::WindowShape& s = shape_;
    for (int64_t y = 0; y < s.kernel_h; ++y)
      for (int64_t x = 0; x < s.kernel_w; ++x) {
        const Tap tap{y, x,
                      span_of(y, rows_, s.height, s.stride_h * every_, s.pad_top, s.dilation_h),
                      span_of(x, columns_, s.width, s.stride_w * every_, s.pad_left, s.dilation_w)};
        if (tap.rows.count > 0 && tap.columns.count > 0) visit(tap);
      }
  }

  // p of one tap: [B, windows, windows, L, heads]
  Tensor attention(const Tap& tap) const { return exponential(tap) / tap.on_windows(sum_); }
  // w of one tap, from its p: [B, windows, windows, heads]
  Tensor weight(const Tap& tap, const Tensor& p) const { return (p * scale_[tap.y][tap.x]).sum(3); }

  const kernels::WindowShape& shape() const { return shape_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  torch::TensorOptions options() const { return scores_.options(); }

 private:
  Tensor windows(double value) const {
    return torch::full({shape_.batch, rows_, columns_, shape_.queries, shape_.heads}, value,
                       scores_.options());
  }
  Tensor table(const ops::OptionalTensor& given, double otherwise) const {
    if (given.has_value()) return given->to(scores_.options());
    return torch::full({shape_.kernel_h, shape_.kernel_w, shape_.queries, shape_.heads}, otherwise,
                       scores_.options());
  }
  Tensor score(const Tap& tap) const { return tap.on_map(scores_) + bias_[tap.y][tap.x]; }
  Tensor exponential(const Tap& tap) const {
    return (score(tap) - tap.on_windows(maximum_)).exp_();
  }

  kernels::WindowShape shape_;
  int64_t rows_, columns_;  // of windows
  int64_t every_;
  Tensor scores_;   // [B, H, W, L, heads]
  Tensor bias_;     // [kh, kw, L, heads]
  Tensor scale_;    // [kh, kw, L, heads]
  Tensor maximum_;  // [B, rows, columns, L, heads]
  Tensor sum_;      // the same
};

}  // namespace

AttentionMaps attention_maps(const Tensor& x, const ops::LayerParameters& parameters,
                             const ops::WindowGeometry& geometry) {
  const torch::NoGradGuard no_grad;
  const WindowSoftmax softmax(x, parameters, geometry, /*every=*/1);
  const kernels::WindowShape& s = softmax.shape();
  const Tensor attention =
      torch::zeros({s.batch, s.height, s.width, s.queries, s.heads}, softmax.options());
  const Tensor weight = torch::zeros({s.batch, s.height, s.width, s.heads}, softmax.options());
  softmax.for_each_tap([&](const auto& tap) {
    const Tensor p = softmax.attention(tap);
    tap.on_map(attention).add_(p);
    tap.on_map(weight).add_(softmax.weight(tap, p).abs_());
  });
  return {attention.permute({0, 3, 4, 1, 2}), weight.permute({0, 3, 1, 2})};
}

AttentionMaps attention_maps(const QnA& layer, const Tensor& x) {
  return attention_maps(x, layer->parameters_for_layer(), layer->geometry());
}

AttentionKernels attention_kernels(const Tensor& x, const ops::LayerParameters& parameters,
                                   const ops::WindowGeometry& geometry, int64_t every) {
  check(every >= 1, "attention_kernels: every must be at least 1, got {}", every);
  const torch::NoGradGuard no_grad;
  const WindowSoftmax softmax(x, parameters, geometry, every);
  const kernels::WindowShape& s = softmax.shape();
  const Tensor attention = torch::zeros(
      {s.batch, softmax.rows(), softmax.columns(), s.queries, s.heads, s.kernel_h, s.kernel_w},
      softmax.options());
  const Tensor weight = attention.new_zeros(
      {s.batch, softmax.rows(), softmax.columns(), s.heads, s.kernel_h, s.kernel_w});
  softmax.for_each_tap([&](const auto& tap) {
    const Tensor p = softmax.attention(tap);
    tap.on_windows(attention).select(-2, tap.y).select(-1, tap.x).copy_(p);
    tap.on_windows(weight).select(-2, tap.y).select(-1, tap.x).copy_(softmax.weight(tap, p));
  });
  return {attention.permute({0, 3, 4, 1, 2, 5, 6}), weight.permute({0, 3, 1, 2, 4, 5})};
}

AttentionKernels attention_kernels(const QnA& layer, const Tensor& x, int64_t every) {
  return attention_kernels(x, layer->parameters_for_layer(), layer->geometry(), every);
}

Tensor attention_map(const WindowSelfAttention& layer, const Tensor& x) {
  const auto& o = layer->options();
  check(x.defined() && x.dim() == 4 && x.size(3) == o.features,
        "attention_map: x must be [batch, height, width, {}], got {}", o.features,
        x.defined() ? ops::sizes_text(x.sizes()) : "an undefined tensor");
  check(o.shift == std::array<int64_t, 2>{0, 0},
        "attention_map: the windows must not be shifted, got a shift of {} x {}", o.shift[0],
        o.shift[1]);
  const torch::NoGradGuard no_grad;
  const int64_t batch = x.size(0), height = x.size(1), width = x.size(2);
  const int64_t dim = o.features / o.heads;
  const auto window = layer->window_on(height, width);
  const int64_t rows = (height + window[0] - 1) / window[0];
  const int64_t columns = (width + window[1] - 1) / window[1];

  // [B, H, W, ...] -> [B, rows, wh, columns, ww, ...], zeros where a window reaches beyond the map
  const auto split = [&](const Tensor& map) {
    const int64_t bottom = rows * window[0] - height, right = columns * window[1] - width;
    std::vector<int64_t> sizes = {batch, rows, window[0], columns, window[1]};
    sizes.insert(sizes.end(), map.sizes().begin() + 3, map.sizes().end());
    return F::pad(map, F::PadFuncOptions({0, 0, 0, right, 0, bottom})).reshape(sizes);
  };
  const Tensor qk =
      to_compute_type(torch::linear(x, layer->qkv->weight.narrow(0, 0, 2 * o.features)));
  const Tensor parts = split(qk).unflatten(-1, {2, o.heads, dim});
  const Tensor q = parts.select(5, 0) / std::sqrt(static_cast<double>(dim));
  const Tensor k = parts.select(5, 1);  // both [B, rows, wh, columns, ww, heads, dim]
  const Tensor outside = split(torch::ones({batch, height, width, 1}, q.options())) == 0;
  const Tensor bias = layer->bias_for(window).to(q.scalar_type());  // by key minus query

  // The same query of all windows at a time, so that memory does not grow with the window.
  Tensor map = torch::zeros({batch, rows, window[0], columns, window[1], o.heads}, q.options());
  for (int64_t y = 0; y < window[0]; ++y)
    for (int64_t x = 0; x < window[1]; ++x) {
      const Tensor query = q.narrow(2, y, 1).narrow(4, x, 1);
      const Tensor shift = bias.narrow(1, bias.size(1) / 2 - y, window[0])
                               .narrow(2, bias.size(2) / 2 - x, window[1])
                               .permute({1, 2, 0})  // [wh, ww, heads]
                               .unsqueeze(1);       // beside [wh, columns, ww, heads]
      const Tensor scores = ((query * k).sum(-1) + shift).masked_fill_(outside, kMinusInfinity);
      const Tensor e = (scores - scores.amax({2, 4}, /*keepdim=*/true)).exp_();
      const Tensor p = e / e.sum({2, 4}, /*keepdim=*/true);
      map += p.masked_fill(outside.narrow(2, y, 1).narrow(4, x, 1), 0);  // no such query
    }
  return map.reshape({batch, rows * window[0], columns * window[1], o.heads})
      .slice(1, 0, height)
      .slice(2, 0, width)
      .permute({0, 3, 1, 2});
}

}  // namespace qna::nn
