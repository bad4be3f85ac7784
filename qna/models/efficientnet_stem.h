// The stem of kind "efficientnet": config/efficientnet_stem.h says what it is.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "qna/config/efficientnet_stem.h"
#include "qna/config/qna_vit.h"

namespace qna::models {

class InvertedResidualImpl : public torch::nn::Cloneable<InvertedResidualImpl> {
 public:
  explicit InvertedResidualImpl(const config::InvertedResidualOptions& options);
  // x [B, H, W, features], mask [B, H, W] or undefined.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask);
  void reset() override;

  torch::nn::Linear expand{nullptr};  // empty where the block has none
  torch::nn::Conv2d depthwise{nullptr};
  torch::nn::Linear project{nullptr};

 private:
  config::InvertedResidualOptions options_;
};
TORCH_MODULE(InvertedResidual);

class EfficientNetStemImpl : public torch::nn::Cloneable<EfficientNetStemImpl> {
 public:
  explicit EfficientNetStemImpl(const config::QnAViTConfig& config);
  // x [B, H, W, channels], any height and width -> [B, ceil(H / 16), ceil(W / 16), features].
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {});
  void reset() override;

  torch::nn::Conv2d conv{nullptr};
  torch::nn::ModuleList blocks{nullptr};
  torch::nn::Linear out{nullptr};

 private:
  int64_t channels_, features_;
};
TORCH_MODULE(EfficientNetStem);

}  // namespace qna::models
