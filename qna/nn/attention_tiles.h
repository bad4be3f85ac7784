// Attention between tiles of a map: the queries of a block attend to the keys of the block and a
// halo around it. Without halo that is self-attention in windows.
//
// Tiles that the map's edge cuts are smaller: nothing is padded, and nothing is masked but what the
// caller masks. By at::scaled_dot_product_attention, which holds no scores where it need not.
#pragma once

#include <torch/types.h>

#include <array>
#include <vector>

namespace qna::nn {

// Tiles of one size in a row, along one axis.
struct TileSpan {
  int64_t tiles;
  int64_t first_query;  // of the first tile, counted in queries
  int64_t queries;      // of each tile
  int64_t first_key;    // of the first tile, counted in pixels
  int64_t keys;         // of each tile
};

struct TileGeometry {
  int64_t block = 8;   // pixels from one tile to the next
  int64_t halo = 0;    // pixels around a block that are keys too
  int64_t stride = 1;  // pixels from one query to the next; must divide block and shift
  int64_t shift = 0;   // where the second tile begins; 0: the first is whole
};

// The tiles that cover `size` pixels, in order.
std::vector<TileSpan> tile_spans(int64_t size, const TileGeometry& geometry);

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
