// What a caller may want to see of a network while it runs. What is not asked for is not computed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "qna/kernels/window_shape.h"

namespace qna::engine {

// Numbers by [batch, ...]. Valid only during the call that shows them.
struct MapView {
  int64_t batch, height, width, features;
  const float* data;  // [batch, height, width, features]
};

struct AttentionLayer {
  std::string name;  // "stages.2.blocks.5", "stages.2.downsample" or "head"
  int64_t stage = 0;
  bool learned_queries = true;  // a QnA layer; else self-attention
  int64_t heads = 0;
  int64_t stride = 1;  // how many pixels one position of the map it looks at stands for
};

// p[l, h, t](i, j): the softmax over the taps t of window (i, j), for query l and head h.
// w[h, t](i, j) = sum over l of scale[l, h, t] p[l, h, t](i, j): what the values are summed with.
//
// The paper's first drawing: what every window gives a location, summed over the windows that see
// it. Over all locations the map of a query and head sums to the number of windows. Self-attention
// counts as one query, and has no weight: what a location gets as a key.
struct AttentionMaps {
  int64_t batch = 0, queries = 0, heads = 0, height = 0, width = 0;
  std::vector<float> attention;  // [B, L, heads, H, W], sums of p
  std::vector<float> weight;     // [B, heads, H, W], sums of |w|; empty for self-attention
};

// The paper's second drawing: the window's weights by themselves, 0 where a tap lies outside the
// map. Of every `every`-th window in both directions, from the first.
struct AttentionKernels {
  int64_t rows = 0, columns = 0, kernel_h = 0, kernel_w = 0;
  int64_t every = 1;
  std::vector<float> attention = {};  // [B, L, heads, rows, columns, kh, kw], p; empty: none
  std::vector<float> weight = {};     // [B, heads, rows, columns, kh, kw], w with its sign
};

// What the softmax is taken of, which is far less than its results: of a QnA layer
//   p[l, h, t](i, j) ~ exp(scores[y, x, l, h] + bias[t, l, h]), (y, x): the place under tap t
struct WindowScores {
  kernels::WindowShape shape = {};
  std::vector<float> scores = {};  // [B, H, W, L, heads]; empty: not asked for, or self-attention
  std::vector<float> bias = {};    // [kh, kw, L, heads]; empty: 0
  std::vector<float> scale = {};   // of w, the same; empty: 1
};

// And of self-attention in windows that begin at the top left and are cut at the other borders:
//   p[h](q, k) ~ exp(queries[q, h] . keys[k, h] + bias[h, k - q]), q, k: places of one window
struct TokenScores {
  std::array<int64_t, 2> window = {0, 0};  // height and width
  std::array<int64_t, 2> table = {0, 0};   // the window that `bias` is for
  int64_t dim = 0;
  std::vector<float> queries = {};  // [B, H, W, heads, dim], over sqrt(dim); empty: as above
  std::vector<float> keys = {};     // [B, H, W, heads, dim]
  std::vector<float> bias = {};  // [heads, 2 table - 1, 2 table - 1], no difference in the middle
};

struct LayerAttention {
  AttentionLayer layer;
  AttentionMaps maps;
  AttentionKernels kernels = {};
  WindowScores window_scores = {};
  TokenScores token_scores = {};
};

// Derive from it and ask for what you want. All calls come from the thread that runs the model, in
// the network's order. All images of a call are shown at once; but where there is a mask one by
// one, each as large as its mask leaves it.
class Visitor {
 public:
  virtual ~Visitor() = default;

  // Maps of the stages of a QnA-ViT (also of a detector's backbone), or behind the layers of an
  // auto-encoder's encoder.
  virtual bool wants_stage(int64_t /*stage*/) { return false; }
  virtual void stage(int64_t /*stage*/, const MapView& /*map*/) {}

  // Of a classifier: what its last product is taken of, [batch, 1, 1, features].
  virtual bool wants_pooled() { return false; }
  virtual void pooled(const MapView& /*pooled*/) {}

  // Where a QnA-ViT looks. kernel_side: the longer side of all kernels side by side, in weights;
  // where it would be longer, only those of every n-th window are made. 0: none.
  virtual bool wants_attention(const AttentionLayer& /*layer*/) { return false; }
  virtual int64_t kernel_side() { return 0; }
  virtual bool wants_scores() { return false; }
  virtual void attention(LayerAttention&& /*attention*/) {}

  // Of a detector: the encoder's result, and where each query of the last decoder block looks,
  // [batch, queries as height, positions as width, 1]: the mean over the heads, rows sum to 1.
  virtual bool wants_encoded() { return false; }
  virtual void encoded(const MapView& /*map*/) {}
  virtual bool wants_decoder_attention() { return false; }
  virtual void decoder_attention(const MapView& /*weights*/, int64_t /*height*/,
                                 int64_t /*width*/) {}

  // True: nothing more is wanted, so that the network need not go on. Its results are then left
  // as they were.
  virtual bool done() { return false; }
};

}  // namespace qna::engine
