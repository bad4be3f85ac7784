// NesT's down-sampling ("Nested Hierarchical Transformer", AAAI 2022): 3 x 3 convolution,
// LayerNorm, 3 x 3 max-pooling with stride 2.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include "qna/nn/mixer.h"

namespace qna::nn {

using config::ConvPoolOptions;

class ConvPoolImpl : public torch::nn::Cloneable<ConvPoolImpl>, public Mixer {
 public:
  explicit ConvPoolImpl(const ConvPoolOptions& options);

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {}) override;

  void reset() override;
  const ConvPoolOptions& options() const { return options_; }
  int64_t in_features() const override { return options_.in_features; }
  int64_t out_features() const override { return options_.out_features; }
  std::array<int64_t, 2> kernel_size() const override { return {3, 3}; }
  std::array<int64_t, 2> stride() const override { return {2, 2}; }

  torch::nn::Conv2d conv{nullptr};
  torch::nn::LayerNorm norm{nullptr};

 private:
  ConvPoolOptions options_;
};

TORCH_MODULE(ConvPool);

// 3 x 3 max-pooling with stride 2 of [B, C, H, W] to half its size, rounded up. Padding lies at the
// bottom and right, where JAX's 'SAME' puts it for even sizes.
torch::Tensor max_pool_by_two(const torch::Tensor& x);

}  // namespace qna::nn
