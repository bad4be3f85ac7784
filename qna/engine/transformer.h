// DETR's transformer, packed: nn/transformer.h says what it computes.
#pragma once

#include <functional>

#include "qna/config/layers.h"
#include "qna/engine/block.h"

namespace qna::engine {

// Attention between rows of features, with its products.
class MultiheadAttention {
 public:
  MultiheadAttention(const Tensors& tensors, int64_t features, int64_t heads);

  // One image's or many images' rows: `queries` and `keys` of each.
  struct Input {
    int64_t batch, queries, keys;
    const float* query;  // [B, queries, C], with the position code
    const float*
        key;  // [B, keys, C], with the position code; the same pointer as query: one product
    const float* value;  // [B, keys, C]
    Mask mask;           // [B, keys], 0 is no key; or null
  };
  // y = residual + attention; y may be the residual. weights: [B, queries, keys], the mean over the
  // heads; or null.
  void run(const Input& in, const float* residual, float* y, Worker& worker,
           float* weights = nullptr) const;
  size_t bytes() const;

 private:
  int64_t features_, heads_;
  kernels::PackedWeights query_key_, query_, key_, value_, out_;
};

// Two products with ReLU between: x += mlp(x), of norm(x) where the norm comes first.
class FeedForward {
 public:
  FeedForward(const Tensors& tensors, int64_t features, int64_t hidden, const NormWeights* norm);
  void run(float* x, int64_t rows, Worker& worker) const;
  size_t bytes() const { return expand_.bytes() + contract_.bytes(); }

 private:
  kernels::Norm norm_;
  kernels::PackedWeights expand_, contract_;
};

class Encoder {
 public:
  Encoder(const Tensors& tensors, const config::TransformerOptions& options);
  // x -> x, in place. positions [H, W, C] or [B, H, W, C], repeated every `period` numbers.
  void run(const Map& x, const float* positions, int64_t period, Mask mask, Worker& worker) const;
  size_t bytes() const;

 private:
  struct Layer {
    Layer(const Tensors& tensors, const config::TransformerOptions& options);
    void run(const Map& x, const float* positions, int64_t period, Mask mask, Worker& worker) const;
    bool pre_norm;
    NormWeights norm1, norm2;
    MultiheadAttention attention;
    FeedForward feed_forward;
  };
  // One of the two.
  struct Step {
    std::unique_ptr<const Layer> layer;
    std::unique_ptr<const Block> block;
  };
  std::vector<Step> steps_;
  std::optional<NormWeights> norm_;
};

class Decoder {
 public:
  Decoder(const Tensors& tensors, const config::TransformerOptions& options);

  // What stays the same in all layers.
  struct Memory {
    int64_t batch, positions;
    const float* values;  // [B, positions, C], the encoder's result
    const float* keys;    // the same with the position code added
    Mask mask;            // [B, positions], or null
  };
  // queries [B, Q, C] are added to what attends. After every layer `result` is called with its
  // normalised result [B, Q, C], and may change the queries. attention: the last layer's weights
  // [B, Q, positions], or null.
  void run(const Memory& memory, float* queries, int64_t count,
           FunctionRef<void(size_t layer, const float* result)> result, float* attention,
           Worker& worker) const;
  size_t layers() const { return layers_.size(); }
  size_t bytes() const;

 private:
  struct Layer {
    Layer(const Tensors& tensors, const config::TransformerOptions& options);
    void run(const Memory& memory, const Map& x, const float* queries, float* attention,
             Worker& worker) const;
    bool pre_norm;
    NormWeights norm1, norm2, norm3;
    MultiheadAttention self_attention, attention_to_map;
    FeedForward feed_forward;
  };
  std::vector<std::unique_ptr<const Layer>> layers_;
  NormWeights norm_;
  int64_t features_;
};

}  // namespace qna::engine
