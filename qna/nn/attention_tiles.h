// Attention between tiles of a map: the queries of a block attend to the keys of the block and a
// halo around it. Without halo that is self-attention in windows.
//
// Tiles that the map's edge cuts are smaller: nothing is padded, and nothing is masked but what the
// caller masks. By at::scaled_dot_product_attention, which holds no scores where it need not.
#pragma once

#include <torch/types.h>

#include <array>
#include <vector>

#include "qna/config/attention_tiles.h"

namespace qna::nn {

using config::tile_spans;
using config::TileGeometry;
using config::TileSpan;

struct TileAttention {
  std::array<TileGeometry, 2> geometry;  // rows, columns
  // Of key minus query: [heads, rows, columns].
  torch::Tensor bias;
  // Where the table holds offset 0.
  std::array<int64_t, 2> bias_center;
};

// q [B, ceil(H / stride), ceil(W / stride), heads, dim], with the scores' scale in it; k, v [B, H,
// W, heads, dim]; mask [B, H, W] bool, true is a key, may be undefined -> like q. A tile without
// keys gives the mean of its values.
torch::Tensor attend_tiles(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                           const torch::Tensor& mask, const TileAttention& attention);

}  // namespace qna::nn
