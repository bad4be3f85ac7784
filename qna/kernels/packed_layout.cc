#include "qna/kernels/packed_layout.h"

#include <algorithm>
#include <bit>

namespace qna::kernels {
namespace {

struct Split {
  int64_t cost;
  std::vector<std::pair<int64_t, int64_t>> groups;  // heads, slots
};

// The cheapest way to hold `heads` < lanes heads: one group, or a full power of two and the rest.
template <typename Cost>
Split best_split(int64_t heads, const Cost& cost) {
  const int64_t up = std::bit_ceil(static_cast<uint64_t>(heads));
  Split best{cost(up), {{heads, up}}};
  if (up == heads) return best;
  const int64_t down = up / 2;
  Split rest = best_split(heads - down, cost);
  if (cost(down) + rest.cost < best.cost) {
    best = {cost(down) + rest.cost, {{down, down}}};
    best.groups.insert(best.groups.end(), rest.groups.begin(), rest.groups.end());
  }
  return best;
}

}  // namespace

PackedLayout::PackedLayout(const WindowShape& shape, int64_t lanes_in, ScorePlaces places_in,
                           int64_t in_features, int64_t out_features)
    : lanes(lanes_in),
      queries(shape.queries),
      places(shape.separate ? ScorePlaces::kRepeated : places_in),
      heads_(shape.heads),
      head_dim_(shape.head_dim) {
  int64_t left = shape.heads;
  for (; left >= lanes; left -= lanes) add_group(lanes, lanes);
  if (left == 0) return;
  // A tap costs a group one operation per value vector and about three per score vector for its
  // weights; a product costs every vector of a pixel one operation per feature.
  const auto cost = [&](int64_t slots) {
    const int64_t replicas = lanes / slots;
    const int64_t vectors = (head_dim_ + replicas - 1) / replicas;
    const int64_t scores = score_vectors(replicas);
    return shape.taps() * (vectors + 3 * scores) + in_features * (vectors + scores) +
           out_features * vectors;
  };
  for (const auto& [heads, slots] : best_split(left, cost).groups) add_group(heads, slots);
}

int64_t PackedLayout::score_vectors(int64_t replicas) const {
  return places == ScorePlaces::kRepeated ? queries : (queries + replicas - 1) / replicas;
}

void PackedLayout::add_group(int64_t heads, int64_t slots) {
  const int64_t first = groups.empty() ? 0 : groups.back().first_head + groups.back().heads;
  const int64_t replicas = lanes / slots;
  const int64_t vectors = (head_dim_ + replicas - 1) / replicas;
  const int64_t scores = score_vectors(replicas);
  groups.push_back({first, heads, slots, replicas, vectors, scores, value_floats, score_floats});
  value_floats += vectors * lanes;
  score_floats += scores * lanes;
  most_score_vectors = std::max(most_score_vectors, scores);
}

std::vector<int32_t> PackedLayout::value_sources(const ValueLayout& layout) const {
  std::vector<int32_t> sources(value_floats, -1);
  for (const HeadGroup& group : groups)
    for (int64_t v = 0; v < group.vectors; ++v)
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const int64_t slot = lane % group.slots;
        const int64_t dim = v * group.replicas + lane / group.slots;
        if (slot >= group.heads || dim >= head_dim_) continue;
        sources[group.value_offset + v * lanes + lane] = static_cast<int32_t>(
            (group.first_head + slot) * layout.head_stride + dim * layout.dim_stride);
      }
  return sources;
}

std::vector<int32_t> PackedLayout::score_sources() const {
  std::vector<int32_t> sources(score_floats, -1);
  for (const HeadGroup& group : groups)
    for (int64_t v = 0; v < group.score_vectors; ++v)
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const int64_t slot = lane % group.slots;
        const int64_t query =
            places == ScorePlaces::kRepeated ? v : v * group.replicas + lane / group.slots;
        if (slot >= group.heads || query >= queries) continue;
        sources[group.score_offset + v * lanes + lane] =
            static_cast<int32_t>(query * heads_ + group.first_head + slot);
      }
  return sources;
}

std::vector<int32_t> PackedLayout::first_score_sources() const {
  std::vector<int32_t> sources = score_sources();
  if (places == ScorePlaces::kSideBySide) return sources;
  for (const HeadGroup& group : groups)
    for (int64_t i = 0; i < group.score_vectors * lanes; ++i) {
      if (i % lanes >= group.slots) sources[group.score_offset + i] = -1;
    }
  return sources;
}

}  // namespace qna::kernels
