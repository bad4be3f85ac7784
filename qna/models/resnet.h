// ResNet, "Deep Residual Learning for Image Recognition" (CVPR 2016), as a backbone: torchvision's
// networks with torchvision's names, so that its weights fit, and with their BatchNorm frozen.
//
//   auto model = qna::models::ResNet(qna::config::ResNetConfig{.depth = 50});
//   Tensor map = model->forward_features(images, mask);  // [B, H, W, 3] -> [B, H/32, W/32, 2048]
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "qna/config/resnet.h"

namespace qna::models {

using config::ResNetConfig;

// BatchNorm by statistics that never change: a scale and a shift per feature. All four are buffers,
// as detectors train with a few images per batch, too few to measure statistics or to move them.
class FrozenBatchNormImpl : public torch::nn::Cloneable<FrozenBatchNormImpl> {
 public:
  explicit FrozenBatchNormImpl(int64_t features);
  // norm(conv(x)), as one convolution with the scale in its weights.
  torch::Tensor behind(const torch::nn::Conv2dImpl& conv, const torch::Tensor& x) const;
  void reset() override;

  torch::Tensor weight, bias, running_mean, running_var;

 private:
  int64_t features_;
};
TORCH_MODULE(FrozenBatchNorm);

// A residual block, see config/resnet.h.
class ResNetBlockImpl : public torch::nn::Cloneable<ResNetBlockImpl> {
 public:
  using Options = config::ResNetBlockOptions;
  explicit ResNetBlockImpl(const Options& options);
  // x [B, C, H, W]; outside_in and outside_out: [B, 1, H, W] bool, true where there is no image,
  // for the maps before and behind the block's stride; or undefined.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& outside_in,
                        const torch::Tensor& outside_out);
  void reset() override;

  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr}, conv3{nullptr};  // the third not in basic ones
  FrozenBatchNorm bn1{nullptr}, bn2{nullptr}, bn3{nullptr};
  torch::nn::ModuleList downsample{nullptr};  // convolution and norm, where the shape changes

 private:
  Options options_;
};
TORCH_MODULE(ResNetBlock);

class ResNetImpl : public torch::nn::Cloneable<ResNetImpl> {
 public:
  explicit ResNetImpl(const ResNetConfig& config);

  // x [B, H, W, 3], any height and width. mask [B, H, W] bool, true where there is an image, which
  // begins at the top left. Before every convolution that looks at neighbours, what lies outside is
  // set to 0, as is the border of an image alone: the result for an image does not depend on the
  // others of its batch.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {});
  // The last stage's map; outside the image it means nothing.
  torch::Tensor forward_features(const torch::Tensor& x, const torch::Tensor& mask = {});
  // The last map to logits (without a head: to the mean over positions); mask: by mask_of.
  torch::Tensor forward_head(const torch::Tensor& features, const torch::Tensor& mask = {});

  // The mask of the last map for a mask of pixels.
  torch::Tensor mask_of(const torch::Tensor& mask) const;

  // No gradients for the first convolution and the first stage, as DETR fine-tunes it.
  void freeze_first_stage();

  void reset() override;
  const ResNetConfig& config() const { return config_; }

  torch::nn::Conv2d conv1{nullptr};
  FrozenBatchNorm bn1{nullptr};
  torch::nn::ModuleList layer1{nullptr}, layer2{nullptr}, layer3{nullptr}, layer4{nullptr};
  torch::nn::Linear fc{nullptr};  // empty for 0 classes

 private:
  ResNetConfig config_;
};
TORCH_MODULE(ResNet);

}  // namespace qna::models
