// A pre-norm block, packed: nn/block.h says what it computes.
#pragma once

#include "qna/engine/mixers.h"
#include "qna/engine/qna_layer.h"
#include "qna/engine/window_self_attention.h"

namespace qna::engine {

class Block {
 public:
  Block(const Tensors& tensors, const config::BlockOptions& options);
  Block(const Block&) = delete;  // it points into itself
  Block& operator=(const Block&) = delete;

  const config::BlockShape& shape() const { return shape_; }
  bool strided() const { return shape_.strided(); }

  // x -> y, another map; x may be changed (where a mask hides parts of it).
  void run(const Map& x, const Map& y, Mask mask, Worker& worker) const;

  // Of these at most one is there.
  const QnALayer* qna() const { return qna_ ? &*qna_ : nullptr; }
  const WindowSelfAttention* attention() const { return attention_ ? &*attention_ : nullptr; }
  const NormWeights& norm() const { return norm1_; }
  size_t bytes() const;

 private:
  void run_skip(const Map& x, const Map& y, Worker& worker) const;
  void run_mixer(const Map& x, const Map& y, Mask mask, Worker& worker) const;
  void run_mlp(const Map& x, const float* mixed, const kernels::PackedWeights* project,
               const Map& y, Worker& worker) const;

  config::BlockShape shape_;
  std::array<int64_t, 4> padding_;  // of the layer's window
  bool average_pool_skip_;
  NormWeights norm1_;
  std::optional<QnALayer> qna_;
  std::optional<WindowSelfAttention> attention_;
  std::unique_ptr<const Mixer> mixer_;
  Floats mixer_scale_;  // layer scale behind a mixer; empty: none
  std::optional<Convolution> skip_;
  kernels::PackedWeights expand_, contract_;
  kernels::QnALayerMlp mlp_;
};

}  // namespace qna::engine
