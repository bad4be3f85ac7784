// ResNet, "Deep Residual Learning for Image Recognition" (CVPR 2016), as a backbone: torchvision's
// networks with torchvision's names, so that its weights fit, and with their BatchNorm frozen.
//
//   auto model = qna::models::ResNet(qna::models::ResNetConfig{.depth = 50});
//   Tensor map = model->forward_features(images, mask);  // [B, H, W, 3] -> [B, H/32, W/32, 2048]
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <array>

namespace qna::models {

struct ResNetConfig {
  int64_t depth = 50;  // 18, 50 or 101
  // The last stage keeps its map's size, with twice the distance between the taps: "DC5".
  bool dilation = false;
  int64_t classes = 0;  // 0: no head

  bool basic() const { return depth < 50; }  // blocks of two 3 x 3 convolutions
  std::array<int64_t, 4> blocks() const;
  int64_t features() const { return basic() ? 512 : 2048; }  // of the last map
  int64_t stride() const { return dilation ? 16 : 32; }      // pixels per position of it

  bool operator==(const ResNetConfig&) const = default;
};

// Throws qna::Error that names the field, the rule and the value.
void check(const ResNetConfig& config);

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

// A residual block: two 3 x 3 convolutions, or a 3 x 3 between two 1 x 1 with a quarter of the
// features.
class ResNetBlockImpl : public torch::nn::Cloneable<ResNetBlockImpl> {
 public:
  struct Options {
    bool basic;
    int64_t in_features;
    int64_t features;  // of the output
    int64_t stride;
    int64_t dilation;
  };
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
