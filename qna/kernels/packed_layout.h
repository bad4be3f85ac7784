// How the SIMD kernels lay out one pixel: heads are the fast index.
//
// A vector holds the same dimension(s) of several heads, so the vector of a tap's weights, one per
// head, multiplies value vectors as it is: no broadcast, no permutation. Heads are split into
// groups of one vector each. A group with fewer heads than lanes repeats them: with 4 heads on 8
// lanes a value vector holds two dimensions of the 4 heads. In a vector of scores the places of
// that second dimension hold the next query, since the queries' weights are summed anyway; where
// they are not, or a score comes from such a value vector, every score stands there twice.
#pragma once

#include <cstdint>
#include <vector>

#include "qna/kernels/window_attention.h"

namespace qna::kernels {

struct HeadGroup {
  int64_t first_head;
  int64_t heads;
  int64_t slots;     // heads rounded up to a power of two (or to the lanes)
  int64_t replicas;  // lanes / slots = dimensions per value vector
  int64_t vectors;   // value vectors = ceil(head_dim / replicas)
  int64_t score_vectors;
  int64_t value_offset;  // in floats, within a pixel's values
  int64_t score_offset;  // in floats, within a pixel's scores: [score_vectors][lanes]
};

enum class ScorePlaces { kSideBySide, kRepeated };

struct PackedLayout {
  // Outputs of their own for the queries make kSideBySide kRepeated. in_features and out_features:
  // of the products before and behind the windows, 0 if there are none. They decide which of
  // several layouts costs least.
  PackedLayout(const WindowShape& shape, int64_t lanes, ScorePlaces places, int64_t in_features = 0,
               int64_t out_features = 0);

  int64_t lanes;
  int64_t queries;
  ScorePlaces places;
  int64_t value_floats = 0;
  int64_t score_floats = 0;
  int64_t most_score_vectors = 0;  // of a group
  std::vector<HeadGroup> groups;

  // A pixel's record: values, then raw scores.
  int64_t record() const { return value_floats + score_floats; }

  // For every packed value (score) its offset by `layout` (in [L, heads] order), or -1 for a lane
  // that holds nothing.
  std::vector<int32_t> value_sources(const ValueLayout& layout) const;
  std::vector<int32_t> score_sources() const;
  // The same, but -1 also where a score stands for the second time.
  std::vector<int32_t> first_score_sources() const;

 private:
  int64_t score_vectors(int64_t replicas) const;
  void add_group(int64_t heads, int64_t slots);
  int64_t heads_;
  int64_t head_dim_;
};

}  // namespace qna::kernels
