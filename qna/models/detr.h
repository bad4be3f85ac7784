// DETR, "End-to-End Object Detection with Transformers" (ECCV 2020), and the DETR-QnA of "Learned
// Queries for Efficient Local Attention" (CVPR 2022).
//
//   auto model = qna::models::Detr(qna::config::DetrConfig{.classes = 20});
//   DetrFeatures features = model->forward_features(images, mask);  // [B, H/32, W/32, 256]
//   DetrOutput output = model->forward_head(features);              // boxes and classes
//
// Unlike in the original, the result for an image does not depend on what it was batched with: the
// padding that makes the images of a batch equally large is never seen.
#pragma once

#include <torch/nn/modules/embedding.h>

#include "qna/config/detr.h"
#include "qna/models/qna_vit.h"
#include "qna/models/resnet.h"
#include "qna/nn/position_code.h"
#include "qna/nn/transformer.h"

namespace qna::models {

using config::DetrConfig;

// A network without its head. A QnA-ViT, which ends in sums, is followed by a LayerNorm, as it is
// in front of its classifier.
class BackboneImpl : public torch::nn::Cloneable<BackboneImpl> {
 public:
  explicit BackboneImpl(const DetrConfig& config);
  // x [B, H, W, 3], mask [B, H, W] bool, true where there is an image -> [B, h, w, features].
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {});
  torch::Tensor mask_of(const torch::Tensor& mask) const;  // of the last map
  // BatchNorm stays as it is in evaluation: a few images, padded, say little about all.
  void train(bool on = true) override;
  void freeze_first_stage();  // and the stem: they see so many pixels, and have least to learn
  void freeze();              // all of it: from now on it is as in evaluation, without gradients
  void reset() override;

  ResNet resnet{nullptr};  // one of the two; both are called "body"
  QnAViT qna_vit{nullptr};
  torch::nn::LayerNorm norm{nullptr};  // behind a QnA-ViT

 private:
  DetrConfig config_;
  bool frozen_ = false;
};
TORCH_MODULE(Backbone);

// Linear layers with ReLU between them.
class BoxHeadImpl : public torch::nn::Cloneable<BoxHeadImpl> {
 public:
  explicit BoxHeadImpl(int64_t features);
  // [..., features] -> [..., 4]; a sigmoid of it is a box.
  torch::Tensor forward(const torch::Tensor& x);
  void reset() override;
  torch::nn::ModuleList layers{nullptr};

 private:
  int64_t features_;
};
TORCH_MODULE(BoxHead);

// What the encoder makes of a batch of images.
struct DetrFeatures {
  torch::Tensor map;        // [B, h, w, hidden]; outside the image it means nothing
  torch::Tensor positions;  // [B, h, w, hidden], or [1, ...] for all images alike
  torch::Tensor mask;  // [B, h, w] bool, true where there is an image; or undefined: everywhere
};

// The predictions of every decoder block (config.aux_loss) or of the last one only, which always
// comes last.
struct DetrOutput {
  torch::Tensor logits;  // [blocks, B, queries, classes + 1]; the last class is "no object"
  // [blocks, B, queries, 4]: centre x, centre y, width, height as parts of the image's width and
  // height.
  torch::Tensor boxes;
};

class DetrImpl : public torch::nn::Cloneable<DetrImpl> {
 public:
  explicit DetrImpl(const DetrConfig& config);

  // x [B, H, W, 3], any height and width. mask [B, H, W] bool, true where there is an image, which
  // begins at the top left: images of different sizes share a batch.
  DetrOutput forward(const torch::Tensor& x, const torch::Tensor& mask = {});
  DetrFeatures forward_features(const torch::Tensor& x, const torch::Tensor& mask = {});
  DetrOutput forward_head(const DetrFeatures& features);

  void reset() override;
  const DetrConfig& config() const { return config_; }

  BackboneImpl& backbone() { return backbone_->at<BackboneImpl>(0); }
  nn::PositionCodeImpl& positions() { return backbone_->at<nn::PositionCodeImpl>(1); }

  nn::Transformer transformer{nullptr};
  torch::nn::Conv2d input_proj{nullptr};         // 1 x 1, to the transformer's features
  torch::nn::Embedding query_embed{nullptr};     // the object queries; or, config.anchors:
  torch::nn::Embedding refpoint_embed{nullptr};  // their boxes, before the sigmoid
  torch::nn::Linear class_embed{nullptr};
  BoxHead bbox_embed{nullptr};

 private:
  class Queries;
  torch::nn::ModuleList backbone_{nullptr};  // DETR's names are backbone.0 and backbone.1
  DetrConfig config_;
};
TORCH_MODULE(Detr);

}  // namespace qna::models
