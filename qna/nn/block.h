// A pre-norm transformer block:
//   x = skip(x) + mix(norm(x))
//   x = x + mlp(norm(x))
// where mix is a QnA layer, self-attention in windows or one of their rivals, and skip is x itself
// or, beside a layer with stride, a 1 x 1 convolution with the same stride.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include <memory>

#include "qna/nn/conv_pool.h"
#include "qna/nn/convolution.h"
#include "qna/nn/halo_attention.h"
#include "qna/nn/mlp.h"
#include "qna/nn/norm.h"
#include "qna/nn/qna_layer.h"
#include "qna/nn/sasa.h"
#include "qna/nn/window_self_attention.h"

namespace qna::nn {

using config::BlockOptions;
using config::MixerOptions;

class BlockImpl : public torch::nn::Cloneable<BlockImpl> {
 public:
  explicit BlockImpl(const BlockOptions& options);

  // x [B, H, W, C]; mask [B, H, W] bool, true takes part; what is false counts as 0, whatever
  // stands there, and the result there means nothing.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {});

  void reset() override;
  const BlockOptions& options() const { return options_; }
  int64_t features() const { return shape_.features; }  // of the output

  torch::nn::LayerNorm norm1{nullptr};
  QnA qna{nullptr};  // one of these three, the others are empty
  WindowSelfAttention attention{nullptr};
  std::shared_ptr<Mixer> mixer;
  torch::nn::Conv2d skip{nullptr};  // empty without stride
  torch::nn::LayerNorm norm2{nullptr};
  Mlp mlp{nullptr};
  torch::Tensor scale1;  // [C], or undefined
  torch::Tensor scale2;

 private:
  // The first half of a block, by its modules.
  torch::Tensor forward_mix(const torch::Tensor& x, const torch::Tensor& mask);
  torch::Tensor skipped(const torch::Tensor& x) const;  // through the skip connection
  // What the skip connection's product is taken of.
  torch::Tensor skip_input(const torch::Tensor& x) const;
  ops::QnALayerParameters folded_layer() const;

  BlockOptions options_;
  config::BlockShape shape_;
};

TORCH_MODULE(Block);

}  // namespace qna::nn
