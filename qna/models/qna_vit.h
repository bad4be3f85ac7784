// QnA-ViT, the network family of "Learned Queries for Efficient Local Attention" (CVPR 2022).
//
//   auto model = qna::models::QnAViT(qna::config::find_model("qna_vit_tiny").config);
//   Tensor features = model->forward_features(images);  // [B, H, W, 3] -> [B, H/32, W/32, 512]
//   Tensor logits = model->forward_head(features);      // [B, 1000]
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "qna/config/qna_vit.h"
#include "qna/models/efficientnet_stem.h"
#include "qna/nn/block.h"

namespace qna::models {

using config::QnAViTConfig;

// Pixels to the first map, see config::StemKind; all kinds but "efficientnet".
class StemImpl : public torch::nn::Cloneable<StemImpl> {
 public:
  explicit StemImpl(const QnAViTConfig& config);
  // x [B, H, W, channels] -> [B, ceil(H / stride), ceil(W / stride), features]. Zeros are added at
  // the bottom and right where the stride does not divide, so that a pixel's place in its patch
  // does not depend on the image's size.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {});
  void reset() override;

  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};  // not for patches

 private:
  torch::Tensor forward_patches(const torch::Tensor& x);
  torch::Tensor forward_convolution(const torch::Tensor& x, const torch::Tensor& mask);
  QnAViTConfig config_;
};
TORCH_MODULE(Stem);

// Swin's down-sampling: 2 x 2 neighbours side by side, LayerNorm, a product to twice the features.
class PatchMergingImpl : public torch::nn::Cloneable<PatchMergingImpl> {
 public:
  explicit PatchMergingImpl(int64_t features);
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {});
  void reset() override;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear reduction{nullptr};

 private:
  int64_t features_;
};
TORCH_MODULE(PatchMerging);

// Blocks of one map size, and the way to the next.
class StageImpl : public torch::nn::Cloneable<StageImpl> {
 public:
  // drop_path: one rate per block, and one for the down-sampling.
  StageImpl(const QnAViTConfig& config, size_t index, const std::vector<double>& drop_path);
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask, bool checkpointing);
  torch::Tensor forward_downsample(const torch::Tensor& x, const torch::Tensor& mask,
                                   bool checkpointing);
  void reset() override;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  bool is_last() const { return index_ + 1 == config_.stages.size(); }

  std::vector<nn::Block> blocks;  // self-attention first, then local ones
  nn::Block downsample{nullptr};  // one of the three, none in the last stage
  PatchMerging merge{nullptr};
  nn::ConvPool pool{nullptr};

 private:
  QnAViTConfig config_;
  size_t index_;
  std::vector<double> drop_path_;
};
TORCH_MODULE(Stage);

class ClassificationHeadImpl : public torch::nn::Cloneable<ClassificationHeadImpl> {
 public:
  explicit ClassificationHeadImpl(const QnAViTConfig& config);
  // [B, H, W, C] -> [B, C], and on to [B, classes]; mask [B, H, W].
  torch::Tensor pool(const torch::Tensor& x, const torch::Tensor& mask = {});
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {});
  void reset() override;
  torch::nn::LayerNorm norm{nullptr};
  nn::QnA qna{nullptr};  // 'qnav1' and 'qnav2'
  torch::nn::Linear fc{nullptr};

 private:
  torch::Tensor attend(const torch::Tensor& normed, const torch::Tensor& mask);
  QnAViTConfig config_;
};
TORCH_MODULE(ClassificationHead);

// A table of a window, [kh, kw, queries, heads], resized bicubically for another window.
torch::Tensor resize_window_table(const torch::Tensor& table, std::array<int64_t, 2> window);

// The maps of all stages, finest first, with their masks (undefined where none was given).
struct Pyramid {
  std::vector<torch::Tensor> maps;   // [B, H / stride, W / stride, features]
  std::vector<torch::Tensor> masks;  // [B, H / stride, W / stride]
};

class QnAViTImpl : public torch::nn::Cloneable<QnAViTImpl> {
 public:
  explicit QnAViTImpl(const QnAViTConfig& config);

  // x [B, H, W, channels], any height and width. mask [B, H, W] bool, true where there is an image:
  // in evaluation, what lies outside changes nothing inside, so images of different sizes can
  // share a batch.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {});
  // The last stage's map.
  torch::Tensor forward_features(const torch::Tensor& x, const torch::Tensor& mask = {});
  // All stages' maps, for detectors.
  Pyramid forward_pyramid(const torch::Tensor& x, const torch::Tensor& mask = {});
  // The first stage's input.
  torch::Tensor forward_stem(const torch::Tensor& x, const torch::Tensor& mask = {});
  // The last stage's map to logits (without a head: to the mean over positions). mask: that of the
  // map, by mask_at.
  torch::Tensor forward_head(const torch::Tensor& features, const torch::Tensor& mask = {});

  // The mask of stage `index`'s map for a mask of pixels.
  torch::Tensor mask_at(const torch::Tensor& mask, size_t index) const;

  // Blocks keep only their input for the backward pass and compute the rest again there.
  void set_checkpointing(bool wanted) { checkpointing_ = wanted; }
  // The stem learns no more, and runs as in evaluation. What brings EfficientNet's features to the
  // stages' number of them still learns: it is new where the rest was loaded.
  void freeze_stem();
  void train(bool on = true) override;

  void reset() override;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  const QnAViTConfig& config() const { return config_; }

  Stem stem{nullptr};  // one of the two
  EfficientNetStem efficientnet_stem{nullptr};
  std::vector<Stage> stages;
  ClassificationHead head{nullptr};  // empty for 0 classes

 private:
  torch::nn::Module& any_stem();
  void check_images(const torch::Tensor& x, const torch::Tensor& mask) const;
  // The last stage's map; those of all stages into `pyramid`, unless that is null.
  torch::Tensor run_stages(const torch::Tensor& x, const torch::Tensor& mask, Pyramid* pyramid);

  QnAViTConfig config_;
  bool checkpointing_ = false;
  bool frozen_stem_ = false;
};
TORCH_MODULE(QnAViT);

}  // namespace qna::models
