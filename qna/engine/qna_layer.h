// A QnA layer, packed: the norm before it and a layer scale behind it inside its weights.
#pragma once

#include "qna/config/layers.h"
#include "qna/engine/layers.h"
#include "qna/kernels/qna_layer.h"

namespace qna::engine {

// What the attention weights are made of, without the values: scores of a normalised pixel are its
// product with `score_weight`.
struct ScoreTables {
  config::QnAOptions options;  // complete
  kernels::Norm norm;
  Floats score_weight;  // [in, L, heads]
  Floats bias;          // [kh, kw, L, heads] or empty
  Floats tap_weights;   // the same
};

// What kernels/qna_layer.h takes, made from the layer's parameters.
struct QnATables {
  // norm: LayerNorm in front, or null. scale: of the output; empty: none.
  QnATables(const Tensors& tensors, const config::QnAOptions& options, const NormWeights* norm,
            const Floats& scale);

  void point(kernels::QnALayerArgs<float>& args) const;
  ScoreTables scores(kernels::Norm norm) const {
    return {options, norm, score_weight, bias, tap_weights};
  }

  config::QnAOptions options;  // complete
  Floats score_weight;         // [in, L, heads]
  Floats value_weight;         // [in, heads, dim]
  Floats value_bias;           // [heads, dim] or empty
  Floats out_weight;           // [heads, dim, out]
  Floats out_bias;             // [out] or empty
  Floats bias;                 // [kh, kw, L, heads] or empty
  Floats tap_weights;          // the same

 private:
  void fold(const Floats& query, const Floats& key_weight, const NormWeights* norm);
};

// The window's shape for a map, checked: a map that the window does not fit is a qna::Error.
kernels::WindowShape window_shape(const config::QnAOptions& options, int64_t batch, int64_t height,
                                  int64_t width);

class QnALayer {
 public:
  QnALayer(const Tensors& tensors, const config::QnAOptions& options, const NormWeights* norm,
           const Floats& scale = {});

  // {height, width} of the result.
  std::array<int64_t, 2> out_size(int64_t height, int64_t width) const;
  // y = residual + layer(norm(x)), and on through an MLP if one is given. residual: null, x or y.
  void run(const Map& x, const Map& y, Mask mask, Worker& worker, const float* residual = nullptr,
           const kernels::QnALayerMlp* mlp = nullptr) const;

  const config::QnAOptions& options() const { return scores_.options; }
  const ScoreTables& scores() const { return scores_; }
  size_t bytes() const { return packed_.bytes(); }

 private:
  ScoreTables scores_;  // for those who want to see the attention
  kernels::PackedWeights packed_;
};

// The head's one window is as large as the map, whatever its size; so are its tables.
class QnAOverMap {
 public:
  QnAOverMap(const Tensors& tensors, const config::QnAOptions& options, const NormWeights* norm);
  // x -> y [batch, 1, 1, features].
  void run(const Map& x, const Map& y, Mask mask, Worker& worker) const;
  ScoreTables scores_for(int64_t height, int64_t width) const {
    return tables_for(height, width).scores(norm_);
  }

 private:
  // The tables for a map of this size.
  QnATables tables_for(int64_t height, int64_t width) const;
  int64_t columns() const { return tables_.options.queries * tables_.options.heads; }

  QnATables tables_;
  kernels::Norm norm_;
};

}  // namespace qna::engine
