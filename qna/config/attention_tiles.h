// How blocks with a halo, or windows, tile a map along one axis.
#pragma once

#include <cstdint>
#include <vector>

namespace qna::config {

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

}  // namespace qna::config
