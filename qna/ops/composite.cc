#include "qna/ops/composite.h"

#include <ATen/ATen.h>

#include <limits>

namespace qna::ops {
namespace {

using kernels::WindowShape;

// 16-bit maps are computed in float32.
at::ScalarType compute_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Depth-wise convolution of a channels-last map: window sums with weights.
// map [B, H, W, channels], kernel [kh, kw, channels] -> [B, OH, OW, channels]
at::Tensor window_sum(const at::Tensor& map, const at::Tensor& kernel, const WindowShape& s) {
  at::Tensor input = map.permute({0, 3, 1, 2});  // channels-last memory
  std::vector<int64_t> padding = {s.pad_top, s.pad_left};
  if (s.pad_top != s.pad_bottom || s.pad_left != s.pad_right) {
    input = at::constant_pad_nd(input, {s.pad_left, s.pad_right, s.pad_top, s.pad_bottom}, 0)
                .contiguous(at::MemoryFormat::ChannelsLast);
    padding = {0, 0};
  }
  const at::Tensor weight = kernel.permute({2, 0, 1}).unsqueeze(1);  // [channels, 1, kh, kw]
  return at::conv2d(input, weight, {}, {s.stride_h, s.stride_w}, padding,
                    {s.dilation_h, s.dilation_w}, map.size(3))
      .permute({0, 2, 3, 1});
}

// Whether some window lies in the padding altogether.
bool has_empty_windows(const WindowShape& s) {
  const auto empty = [](int64_t windows, int64_t stride, int64_t pad, int64_t kernel,
                        int64_t dilation, int64_t size) {
    for (int64_t i = 0; i < windows; ++i) {
      const auto range = kernels::valid_taps(i * stride - pad, kernel, dilation, size);
      if (range.begin == range.end) return true;
    }
    return false;
  };
  return empty(s.out_height(), s.stride_h, s.pad_top, s.kernel_h, s.dilation_h, s.height) ||
         empty(s.out_width(), s.stride_w, s.pad_left, s.kernel_w, s.dilation_w, s.width);
}

// Bias [kh, kw, L, heads] less its maximum over the taps, exponentiated. A bias of -inf for every
// tap takes the query out.
at::Tensor exp_bias(const at::Tensor& bias) {
  const at::Tensor maximum = bias.detach().amax({0, 1}, true);
  return (bias - maximum.masked_fill(maximum.isneginf(), 0)).exp();
}

struct Inputs {
  at::Tensor scores, values, bias,
      tap_weights;         // in the compute type; the last two may be undefined
  at::Tensor taking_part;  // [B, H, W, 1, 1] bool, or undefined
};

Inputs prepare(const at::Tensor& scores, const at::Tensor& values, const OptionalTensor& bias,
               const OptionalTensor& tap_weights, const OptionalTensor& mask) {
  const at::ScalarType type = compute_type(values);
  Inputs in{scores.to(type), values.to(type), {}, {}, {}};
  if (given(bias)) in.bias = bias->to(type);
  if (given(tap_weights)) in.tap_weights = tap_weights->to(type);
  if (given(mask)) {
    in.taking_part = mask->to(at::kBool).unsqueeze(-1).unsqueeze(-1);
    in.values = in.values.masked_fill(~in.taking_part, 0);  // 0 * inf would be NaN
  }
  return in;
}

}  // namespace

at::Tensor window_attention_composite(const at::Tensor& scores, const at::Tensor& values,
                                      const OptionalTensor& bias, const OptionalTensor& tap_weights,
                                      const OptionalTensor& mask, const WindowShape& s) {
  if (s.batch == 0) return window_attention_gather(scores, values, bias, tap_weights, mask, s);
  const Inputs in = prepare(scores, values, bias, tap_weights, mask);
  const auto type = in.scores.options();
  const double infinity = std::numeric_limits<double>::infinity();

  // E = exp(score - maximum)                                   [B, H, W, L, heads]
  at::Tensor shifted = in.scores;
  if (in.taking_part.defined()) shifted = shifted.masked_fill(~in.taking_part, -infinity);
  at::Tensor maximum = shifted.detach().amax({1, 2}, true);
  maximum = maximum.masked_fill(maximum.isneginf(), 0);
  const at::Tensor e = (shifted - maximum).exp();
  const at::Tensor b = in.bias.defined()
                           ? exp_bias(in.bias)
                           : at::ones({s.kernel_h, s.kernel_w, s.queries, s.heads}, type);
  const at::Tensor bw = in.tap_weights.defined() ? b * in.tap_weights : b;

  // Denominators: window sums of E, weighted by exp(bias).     [B, OH, OW, L, heads]
  at::Tensor sums = window_sum(e.flatten(3), b.flatten(2), s)
                        .reshape({s.batch, s.out_height(), s.out_width(), s.queries, s.heads});
  // Far below the map's maximum a window's exponentials vanish.
  const double least = type.dtype() == at::kDouble ? 0x1p-900 : 0x1p-80;
  at::Tensor trusted = sums.detach() >= least;
  if (in.taking_part.defined() || has_empty_windows(s)) {
    at::Tensor ones = at::ones({s.batch, s.height, s.width, 1}, type);
    if (in.taking_part.defined()) ones = in.taking_part.squeeze(-1).to(type.dtype());
    const at::Tensor count =
        window_sum(ones, at::ones({s.kernel_h, s.kernel_w, 1}, type), s).unsqueeze(-1);
    const at::Tensor empty = count < 0.5;
    trusted = trusted.logical_or(empty);
    sums = sums.masked_fill(empty, 1);  // the numerators are 0
  }
  if (!trusted.all().item<bool>()) {
    return window_attention_gather(scores, values, bias, tap_weights, mask, s);
  }

  // Numerators: window sums of E * value, for every query.     [B, OH, OW, L, heads, dim]
  const at::Tensor ev = e.unsqueeze(-1) * in.values.unsqueeze(3);
  const at::Tensor kernel =
      bw.unsqueeze(-1).expand({-1, -1, -1, -1, s.head_dim}).reshape({s.kernel_h, s.kernel_w, -1});
  const at::Tensor numerators =
      window_sum(ev.flatten(3), kernel, s)
          .reshape({s.batch, s.out_height(), s.out_width(), s.queries, s.heads, s.head_dim});
  const at::Tensor z = numerators / sums.unsqueeze(-1);
  return (s.separate ? z : z.sum(3)).to(values.scalar_type());
}

at::Tensor window_attention_gather(const at::Tensor& scores, const at::Tensor& values,
                                   const OptionalTensor& bias, const OptionalTensor& tap_weights,
                                   const OptionalTensor& mask, const WindowShape& s) {
  const Inputs in = prepare(scores, values, bias, tap_weights, mask);
  const auto indices = in.scores.options().dtype(at::kLong);
  const double infinity = std::numeric_limits<double>::infinity();

  // For every window and tap its row and column, and whether it lies on the map.
  const at::Tensor rows =
      (at::arange(s.out_height(), indices) * s.stride_h - s.pad_top).unsqueeze(1) +
      at::arange(s.kernel_h, indices) * s.dilation_h;  // [OH, kh]
  const at::Tensor columns =
      (at::arange(s.out_width(), indices) * s.stride_w - s.pad_left).unsqueeze(1) +
      at::arange(s.kernel_w, indices) * s.dilation_w;  // [OW, kw]
  const at::Tensor row_index = rows.clamp(0, s.height - 1).flatten();
  const at::Tensor column_index = columns.clamp(0, s.width - 1).flatten();
  // map [B, H, W, ...] -> [B, OH, OW, kh * kw, ...]
  const auto taps = [&](const at::Tensor& map) {
    const at::Tensor picked = map.index_select(1, row_index).index_select(2, column_index);
    return picked.unflatten(2, {s.out_width(), s.kernel_w})
        .unflatten(1, {s.out_height(), s.kernel_h})  // [B, OH, kh, OW, kw, ...]
        .transpose(2, 3)
        .flatten(3, 4);
  };
  const at::Tensor row_valid = (rows >= 0).logical_and(rows < s.height);
  const at::Tensor column_valid = (columns >= 0).logical_and(columns < s.width);
  at::Tensor valid = row_valid.view({1, s.out_height(), 1, s.kernel_h, 1})
                         .logical_and(column_valid.view({1, 1, s.out_width(), 1, s.kernel_w}))
                         .flatten(3, 4)
                         .unsqueeze(-1)
                         .unsqueeze(-1);  // [1, OH, OW, taps, 1, 1]
  if (in.taking_part.defined()) valid = valid.logical_and(taps(in.taking_part));

  at::Tensor logits = taps(in.scores);  // [B, OH, OW, taps, L, heads]
  // The scores' maximum goes first: near numbers subtract exactly, score + bias would round.
  const at::Tensor top = logits.detach().masked_fill(~valid, -infinity).amax(3, true);
  logits = logits - top.masked_fill(top.isneginf(), 0);
  if (in.bias.defined()) {
    const at::Tensor b = in.bias.flatten(0, 1);
    const at::Tensor b_top = b.detach().amax(0, true);
    logits = logits + (b - b_top.masked_fill(b_top.isneginf(), 0));
  }
  logits = logits.masked_fill(~valid, -infinity);
  at::Tensor maximum = logits.detach().amax(3, true);
  maximum = maximum.masked_fill(maximum.isneginf(), 0);
  const at::Tensor e = (logits - maximum).exp();
  const at::Tensor sum = e.sum(3, true);
  at::Tensor p = e / sum.masked_fill(sum == 0, 1);
  if (in.tap_weights.defined()) p = p * in.tap_weights.flatten(0, 1);
  const at::Tensor v = taps(in.values);  // [B, OH, OW, taps, heads, dim]
  const at::Tensor z = s.separate ? at::einsum("bijtlh,bijthd->bijlhd", {p, v})
                                  : at::einsum("bijth,bijthd->bijhd", {p.sum(4), v});
  return z.to(values.scalar_type());
}

at::Tensor spread_queries(const at::Tensor& z, int64_t upsample) {
  if (upsample == 1) return z.squeeze(3);
  return z
      .unflatten(3, {upsample, upsample})  // [B, OH, OW, s, s, features]
      .transpose(2, 3)
      .flatten(3, 4)
      .flatten(1, 2);
}

at::Tensor qna_layer_composite(const at::Tensor& x, const at::Tensor& score_weight,
                               const at::Tensor& value_weight, const OptionalTensor& value_bias,
                               const at::Tensor& out_weight, const OptionalTensor& out_bias,
                               const OptionalTensor& bias, const OptionalTensor& tap_weights,
                               const OptionalTensor& mask, const WindowShape& s, int64_t upsample) {
  const at::ScalarType type = compute_type(x);
  at::Tensor input = x.to(type);
  // Masked pixels may hold anything; it must not reach the gradients of the weights either.
  if (given(mask)) input = input.masked_fill(~mask->to(at::kBool).unsqueeze(-1), 0);
  const at::Tensor scores = input.matmul(score_weight.to(type).flatten(1))
                                .unflatten(3, {s.queries, s.heads});  // [B, H, W, L, heads]
  at::Tensor values = input.matmul(value_weight.to(type).flatten(1));
  if (given(value_bias)) values = values + value_bias->to(type).flatten();
  values = values.unflatten(3, {s.heads, s.head_dim});  // [B, H, W, heads, dim]
  const at::Tensor z =
      window_attention_composite(scores, values, bias, tap_weights, mask, s).flatten(-2);
  at::Tensor y = z.matmul(out_weight.to(type).flatten(0, 1));
  if (given(out_bias)) y = y + out_bias->to(type);
  return (s.separate ? spread_queries(y, upsample) : y).to(x.scalar_type());
}

}  // namespace qna::ops
