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
#include <optional>
#include <variant>

#include "qna/nn/conv_pool.h"
#include "qna/nn/convolution.h"
#include "qna/nn/halo_attention.h"
#include "qna/nn/mlp.h"
#include "qna/nn/norm.h"
#include "qna/nn/qna.h"
#include "qna/nn/sasa.h"
#include "qna/nn/versioned.h"
#include "qna/nn/window_self_attention.h"

namespace qna::nn {

using MixerOptions =
    std::variant<SasaOptions, HaloAttentionOptions, ConvolutionOptions, ConvPoolOptions>;

struct BlockOptions {
  // Exactly one of the three.
  std::optional<QnAOptions> qna = std::nullopt;
  std::optional<WindowSelfAttentionOptions> attention = std::nullopt;
  std::optional<MixerOptions> mixer = std::nullopt;
  bool average_pool_skip = false;  // beside a stride: pool over the window before the skip
  double mlp_ratio = 4;
  kernels::Activation activation = kernels::Activation::kGeluTanh;
  double layer_scale = 0;  // initial value of a learned scale behind each branch; 0: none
  // Stochastic depth in training. A block with stride drops only its MLP branch.
  double drop_path = 0;
};

struct BlockPack;  // the weights as the inference kernels want them

class BlockImpl : public torch::nn::Cloneable<BlockImpl> {
 public:
  explicit BlockImpl(const BlockOptions& options);

  // x [B, H, W, C]; mask [B, H, W] bool, true takes part; what is false counts as 0, whatever
  // stands there, and the result there means nothing. Where no gradient is wanted, float32 on a CPU
  // runs in fused kernels with packed weights.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {});
  // The same by differentiable operators, whatever is wanted.
  torch::Tensor forward_differentiable(const torch::Tensor& x, const torch::Tensor& mask = {});

  // Packs the weights again at the next call. Needed only after changes that version counters do
  // not show: through a raw pointer or tensor.data(), as torch::optim::SGD makes them.
  void forget_packed_weights() { packed_.clear(); }

  void reset() override;
  const BlockOptions& options() const { return options_; }
  int64_t features() const { return features_; }  // of the output

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
  torch::Tensor forward_fused(const torch::Tensor& x, const torch::Tensor& mask);
  // The first half of a block.
  torch::Tensor forward_mix(const torch::Tensor& x, const torch::Tensor& mask);
  torch::Tensor skipped(const torch::Tensor& x) const;  // through the skip connection
  // What the skip connection's product is taken of.
  torch::Tensor skip_input(const torch::Tensor& x) const;
  ops::LayerParameters folded_layer() const;
  BlockPack pack() const;
  std::vector<torch::Tensor> pack_sources() const;  // the parameters, without a walk over modules

  BlockOptions options_;
  int64_t features_;
  // Of the layer that mixes.
  std::array<int64_t, 2> kernel_size_;
  std::array<int64_t, 2> stride_;
  Versioned<BlockPack> packed_;
};

TORCH_MODULE(Block);

}  // namespace qna::nn
