// HaloNet's attention against plain loops: blocks, halos, strides, edges, masks, gradients.
#include "qna/nn/halo_attention.h"

#include "qna/nn/mixer_testonly.h"

namespace qna::nn {
namespace {

using namespace qna::nn::testing;

struct HaloRow : MixerRow {
  using Layer = HaloAttention;

  static Tensor by_loops(const HaloAttention& layer, const Tensor& x, const Tensor& mask) {
    const HaloAttentionOptions& o = layer->options();
    const auto halo = o.halo();
    const int64_t rows = (x.size(1) - 1) / o.stride[0] + 1;
    const int64_t columns = (x.size(2) - 1) / o.stride[1] + 1;
    const auto query_at = [&](int64_t i, int64_t j) {
      Query query{i * o.stride[0], j * o.stride[1], {}};
      const int64_t top = query.y / o.block[0] * o.block[0] - halo[0];
      const int64_t left = query.x / o.block[1] * o.block[1] - halo[1];
      for (int64_t y = top; y < top + o.block[0] + 2 * halo[0]; ++y)
        for (int64_t c = left; c < left + o.block[1] + 2 * halo[1]; ++c) {
          query.keys.push_back({y, c, y - query.y + o.block[0] - o.stride[0] + halo[0],
                                c - query.x + o.block[1] - o.stride[1] + halo[1]});
        }
      return query;
    };
    return attention_by_loops(layer, x, mask, {rows, columns}, layer->relative_bias, query_at);
  }

  static std::vector<MixerCase<HaloAttentionOptions>> cases() {
    return {
        {"whole blocks", {.in_features = 8, .heads = 2, .block = {3, 3}}, 9, 12},
        {"cut blocks", {.in_features = 8, .heads = 2, .block = {3, 4}}, 10, 9},
        {"default block on a small map", {.in_features = 8, .heads = 4}, 5, 3},
        {"default block, 7 x 7", {.in_features = 6, .heads = 2, .kernel_size = {7, 7}}, 17, 20},
        {"halo larger than the block",
         {.in_features = 4, .heads = 2, .kernel_size = {9, 7}, .block = {2, 2}},
         11,
         8},
        {"even window",
         {.in_features = 4, .heads = 1, .kernel_size = {4, 2}, .block = {2, 3}},
         5,
         7},
        {"no halo", {.in_features = 4, .heads = 2, .kernel_size = {1, 1}, .block = {2, 2}}, 5, 4},
        {"one pixel", {.in_features = 4, .heads = 2}, 1, 1},
        {"stride 2",
         {.in_features = 6, .out_features = 12, .heads = 4, .block = {4, 4}, .stride = {2, 2}},
         8,
         12},
        {"stride 2, odd map",
         {.in_features = 6, .out_features = 8, .block = {4, 4}, .stride = {2, 2}},
         11,
         7},
        {"stride 3 x 1",
         {.in_features = 4, .heads = 2, .kernel_size = {5, 5}, .block = {6, 2}, .stride = {3, 1}},
         13,
         5},
    };
  }

  static std::vector<MixerMistake<HaloAttentionOptions>> mistakes() {
    return {
        {{}, {"HaloAttention", "in_features", "got 0"}},
        {{.in_features = 8, .out_features = -1}, {"out_features", "got -1"}},
        {{.in_features = 8, .heads = 3}, {"heads", "divide", "8", "got 3"}},
        {{.in_features = 8, .kernel_size = {0, 3}}, {"kernel_size", "height", "got 0"}},
        {{.in_features = 8, .block = {8, 0}}, {"block", "width", "got 0"}},
        {{.in_features = 8, .stride = {1, 0}}, {"stride", "width", "got 0"}},
        {{.in_features = 8, .stride = {3, 2}}, {"stride", "divide block", "8 x 8", "got 3 x 2"}}};
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(HaloAttention, MixerSweep, HaloRow);

// Every pixel has one query, and tiles of one kind stand together.
TEST(TileSpans, CoverTheMap) {
  for (int64_t size = 1; size < 40; ++size) {
    for (const TileGeometry& g :
         {TileGeometry{.block = 8, .halo = 1}, TileGeometry{.block = 4, .halo = 9},
          TileGeometry{.block = 7, .shift = 3}, TileGeometry{.block = 1},
          TileGeometry{.block = 6, .halo = 2, .stride = 3}}) {
      int64_t queries = 0;
      const auto spans = tile_spans(size, g);
      for (const TileSpan& span : spans) {
        EXPECT_EQ(span.first_query, queries);
        queries += span.tiles * span.queries;
        EXPECT_GE(span.first_key, 0);
        EXPECT_LE(span.first_key + (span.tiles - 1) * g.block + span.keys, size);
      }
      EXPECT_EQ(queries, (size + g.stride - 1) / g.stride);
      if (g.halo < g.block) {
        EXPECT_LE(spans.size(), 4u);
      }
    }
  }
}

}  // namespace
}  // namespace qna::nn
