#include <ATen/ATen.h>

#include "qna/ops/sasa.h"

namespace qna::ops {
namespace {

using kernels::WindowShape;

bool has_padding(const WindowShape& s) {
  return s.pad_top > 0 || s.pad_bottom > 0 || s.pad_left > 0 || s.pad_right > 0;
}

// map [B, H, W, ...] -> [B, OH, OW, ..., taps]; zeros outside the map.
at::Tensor unfold(const at::Tensor& map, const WindowShape& s) {
  at::Tensor padded = map;
  if (has_padding(s)) {
    std::vector<int64_t> sides(2 * (map.dim() - 3), 0);  // from the last dimension on
    for (const int64_t side : {s.pad_left, s.pad_right, s.pad_top, s.pad_bottom}) {
      sides.push_back(side);
    }
    padded = at::constant_pad_nd(map, sides);
  }
  const at::Tensor windows =
      padded.unfold(1, s.span_h(), s.stride_h)
          .unfold(2, s.span_w(), s.stride_w)  // [B, OH, OW, ..., rows, columns]
          .slice(-2, 0, std::nullopt, s.dilation_h)
          .slice(-1, 0, std::nullopt, s.dilation_w);
  return windows.flatten(-2);
}

// Which taps take part: [B or 1, OH, OW, 1, 1, taps], or undefined if all do.
at::Tensor valid_taps(const at::Tensor& taking_part, const at::Tensor& like, const WindowShape& s) {
  if (!taking_part.defined() && !has_padding(s)) return {};
  const at::Tensor map = taking_part.defined()
                             ? taking_part
                             : at::ones({1, s.height, s.width}, like.options().dtype(at::kBool));
  return unfold(map, s).unsqueeze(3).unsqueeze(3);
}

}  // namespace

at::Tensor sasa_composite(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const OptionalTensor& bias, const OptionalTensor& mask,
                          const WindowGeometry& geometry) {
  const WindowShape s = sasa_shape(q, k, v, bias, mask, geometry);
  // 16-bit maps are computed in float32.
  const at::ScalarType type = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor keys = k.to(type);
  at::Tensor values = v.to(type);
  at::Tensor taking_part;
  if (given(mask)) {
    taking_part = mask->to(at::kBool);
    const at::Tensor masked = ~taking_part.unsqueeze(-1).unsqueeze(-1);
    keys = keys.masked_fill(masked, 0);  // 0 * inf would be NaN
    values = values.masked_fill(masked, 0);
  }

  // [B, OH, OW, heads, 1, taps]
  const at::Tensor scores = at::matmul(q.to(type).unsqueeze(4), unfold(keys, s));
  at::Tensor without_taps;  // [heads, 1]: a bias of -inf for every tap takes the head out
  if (given(bias)) {
    const at::Tensor table = bias->to(type).permute({2, 0, 1}).flatten(1);  // [heads, taps]
    without_taps = table.detach().isneginf().all(1, true);
    scores.add_(table.masked_fill(without_taps, 0).unsqueeze(1));
  }
  const at::Tensor valid = valid_taps(taking_part, k, s);
  if (valid.defined()) {
    // The lowest number, not -inf: a window without taps would give NaN. As it is, its weights
    // meet values, and so gradients, of 0.
    const double lowest = type == at::kDouble ? -1e308 : -3e38;
    scores.masked_fill_(~valid, lowest);
  }
  at::Tensor out = at::matmul(scores.softmax(-1), unfold(values, s).transpose(-2, -1)).squeeze(4);
  if (without_taps.defined()) out = out.masked_fill(without_taps, 0);
  return out.to(q.scalar_type());  // [B, OH, OW, heads, dim]
}

}  // namespace qna::ops
