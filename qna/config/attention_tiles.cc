#include "qna/config/attention_tiles.h"

#include <algorithm>

namespace qna::config {

std::vector<TileSpan> tile_spans(int64_t size, const TileGeometry& g) {
  std::vector<TileSpan> spans;
  const int64_t before = g.shift > 0 ? g.shift - g.block : 0;  // where the first tile would begin
  for (int64_t begin = before; begin < size; begin += g.block) {
    const int64_t first = std::max<int64_t>(begin, 0);
    const int64_t end = std::min(begin + g.block, size);
    const int64_t first_key = std::max<int64_t>(begin - g.halo, 0);
    const TileSpan span{.tiles = 1,
                        .first_query = first / g.stride,
                        .queries = (end - first + g.stride - 1) / g.stride,
                        .first_key = first_key,
                        .keys = std::min(begin + g.block + g.halo, size) - first_key};
    if (!spans.empty()) {
      // Another one like the last, a block further on.
      TileSpan& last = spans.back();
      const int64_t step = last.tiles * g.block;
      if (span.queries == last.queries && span.keys == last.keys &&
          span.first_key == last.first_key + step &&
          span.first_query * g.stride == last.first_query * g.stride + step) {
        ++last.tiles;
        continue;
      }
    }
    spans.push_back(span);
  }
  return spans;
}

}  // namespace qna::config
