#include "qna/nn/attention_tiles.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>

namespace qna::nn {
namespace {

using torch::Tensor;

// The distance from tile to tile, in keys; anything where there is but one.
int64_t key_step(const TileSpan& span, const TileGeometry& geometry) {
  return span.tiles > 1 ? geometry.block : 1;
}

// x [B, H, W, ...] -> [B, tiles, tiles, ..., rows, columns], a view.
Tensor keys_of(const Tensor& x, const TileSpan& rows, const TileSpan& columns,
               const TileAttention& a) {
  const auto part = [](const Tensor& map, int64_t axis, const TileSpan& span, int64_t step) {
    return map.narrow(axis, span.first_key, span.keys + (span.tiles - 1) * step)
        .unfold(axis, span.keys, step);
  };
  return part(part(x, 1, rows, key_step(rows, a.geometry[0])), 2, columns,
              key_step(columns, a.geometry[1]));
}

// [B, H, W, heads, dim] -> [B * tiles, heads, keys, dim]
Tensor key_rows(const Tensor& x, const TileSpan& rows, const TileSpan& columns,
                const TileAttention& a) {
  return keys_of(x, rows, columns, a)  // [B, tiles, tiles, heads, dim, rows, columns]
      .permute({0, 1, 2, 3, 5, 6, 4})
      .reshape({-1, x.size(3), rows.keys * columns.keys, x.size(4)});
}

// [B, H, W, heads, dim] -> [B * tiles, heads, queries, dim]
Tensor query_rows(const Tensor& q, const TileSpan& rows, const TileSpan& columns) {
  return q.narrow(1, rows.first_query, rows.tiles * rows.queries)
      .narrow(2, columns.first_query, columns.tiles * columns.queries)
      .unflatten(2, {columns.tiles, columns.queries})
      .unflatten(1, {rows.tiles, rows.queries})
      .permute({0, 1, 3, 5, 2, 4, 6})
      .reshape({-1, q.size(3), rows.queries * columns.queries, q.size(4)});
}

// The way back: [B, rows, columns, heads, dim].
Tensor as_map(const Tensor& y, const TileSpan& rows, const TileSpan& columns) {
  return y.unflatten(0, {-1, rows.tiles, columns.tiles})
      .unflatten(4, {rows.queries, columns.queries})
      .permute({0, 1, 4, 2, 5, 3, 6})
      .reshape(
          {-1, rows.tiles * rows.queries, columns.tiles * columns.queries, y.size(1), y.size(3)});
}

// Key minus query, plus `center`: [queries, keys].
Tensor offsets(const TileSpan& span, int64_t stride, int64_t center, const torch::Device& device) {
  const auto options = torch::TensorOptions(torch::kLong).device(device);
  const Tensor key = torch::arange(span.keys, options) + span.first_key;
  const Tensor query = (torch::arange(span.queries, options) + span.first_query) * stride;
  return key.unsqueeze(0) - query.unsqueeze(1) + center;
}

// [1, heads, queries, keys]
Tensor bias_of(const TileSpan& rows, const TileSpan& columns, const TileAttention& a) {
  const auto index = [&](const TileSpan& span, int axis) {
    return offsets(span, a.geometry[axis].stride, a.bias_center[axis], a.bias.device());
  };
  const Tensor y = index(rows, 0).view({rows.queries, 1, rows.keys, 1});
  const Tensor x = index(columns, 1).view({1, columns.queries, 1, columns.keys});
  return a.bias.flatten(1)
      .index_select(1, (y * a.bias.size(2) + x).flatten())
      .view({1, a.bias.size(0), rows.queries * columns.queries, rows.keys * columns.keys});
}

// A number that no score reaches and that leaves room for a bias. Not -inf: a tile without keys
// would give NaN, in the gradient too.
double lowest(at::ScalarType type) { return type == torch::kHalf ? -3e4 : -1e38; }

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
              const TileSpan& rows, const TileSpan& columns, const TileAttention& a) {
  const Tensor queries = query_rows(q, rows, columns);
  Tensor bias = bias_of(rows, columns, a).to(queries.scalar_type());
  if (mask.defined()) {
    const Tensor outside =
        ~keys_of(mask, rows, columns, a).reshape({-1, 1, 1, rows.keys * columns.keys});
    bias = bias.masked_fill(outside, lowest(bias.scalar_type()));
  }
  const Tensor y = at::scaled_dot_product_attention(
      queries, key_rows(k, rows, columns, a), key_rows(v, rows, columns, a), bias,
      /*dropout_p=*/0, /*is_causal=*/false, /*scale=*/1.0);
  return as_map(y, rows, columns);
}

}  // namespace

Tensor attend_tiles(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                    const TileAttention& attention) {
  if (q.numel() == 0) return torch::empty_like(q);
  const std::vector<TileSpan> rows = tile_spans(k.size(1), attention.geometry[0]);
  const std::vector<TileSpan> columns = tile_spans(k.size(2), attention.geometry[1]);
  std::vector<Tensor> bands;
  for (const TileSpan& row : rows) {
    std::vector<Tensor> parts;
    for (const TileSpan& column : columns) {
      parts.push_back(attend(q, k, v, mask, row, column, attention));
    }
    bands.push_back(parts.size() == 1 ? parts.front() : torch::cat(parts, 2));
  }
  return bands.size() == 1 ? bands.front() : torch::cat(bands, 1);
}

}  // namespace qna::nn
