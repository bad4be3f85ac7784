// Self-attention in windows or over the whole map, between the product in front of it and the one
// behind it.
#pragma once

#include "qna/config/layers.h"
#include "qna/engine/layers.h"

namespace qna::engine {

class WindowSelfAttention {
 public:
  WindowSelfAttention(const Tensors& tensors, const config::WindowSelfAttentionOptions& options,
                      const NormWeights& norm, const Floats& scale);

  // What the last product is taken of: mixed [x's rows, features].
  void mix(const Map& x, float* mixed, Mask mask, Worker& worker) const;
  const kernels::PackedWeights& project() const { return project_; }

  const config::WindowSelfAttentionOptions& options() const { return options_; }
  // The windows on a map of this size, and the table for them: [heads, 2 wh - 1, 2 ww - 1] or
  // larger, by key minus query. It is as trained, or resized in memory of the scope.
  std::array<int64_t, 2> window_on(int64_t height, int64_t width) const;
  const float* bias_for(std::array<int64_t, 2> window, Scope& scope) const;
  // The product in front, [x's rows, 3, heads, dim].
  void project_in(const Map& x, float* qkv, Worker& worker) const;
  size_t bytes() const { return qkv_.bytes() + project_.bytes(); }

 private:
  void attend(const Map& qkv, float* mixed, Mask mask, const float* bias,
              std::array<int64_t, 2> window, Worker& worker) const;

  config::WindowSelfAttentionOptions options_;
  kernels::Norm norm_;
  kernels::PackedWeights qkv_, project_;
  Floats table_;  // [2 h - 1, 2 w - 1, heads] by query minus key, as trained
  Floats bias_;   // [heads, 2 h - 1, 2 w - 1] by key minus query
};

}  // namespace qna::engine
