#include "qna/models/detr.h"

#include "qna/base/error.h"
#include "qna/ops/geometry.h"

namespace qna::models {
namespace {

nn::TransformerOptions transformer_options(const DetrConfig& c) {
  nn::TransformerOptions options{.features = c.hidden,
                                 .heads = c.heads,
                                 .encoder_blocks = c.encoder_blocks,
                                 .decoder_blocks = c.decoder_blocks,
                                 .feedforward = c.feedforward,
                                 .dropout = c.dropout,
                                 .pre_norm = c.pre_norm};
  if (c.qna.blocks > 0) {
    options.qna_blocks = c.qna.blocks;
    options.qna_replaced = c.qna.replaces;
    options.qna_first = c.qna.first;
    options.qna_block = {.qna = nn::QnAOptions{.in_features = c.hidden,
                                               .heads = c.qna.heads,
                                               .queries = c.qna.queries,
                                               .kernel_size = c.qna.kernel_size},
                         .mlp_ratio = c.qna.mlp_ratio};
  }
  return options;
}

}  // namespace

// ---- backbone ----

BackboneImpl::BackboneImpl(const DetrConfig& config) : config_(config) { BackboneImpl::reset(); }

void BackboneImpl::reset() {
  if (const auto* config = std::get_if<ResNetConfig>(&config_.backbone)) {
    resnet = register_module("body", ResNet(*config));
    return;
  }
  qna_vit = register_module("body", QnAViT(std::get<QnAViTConfig>(config_.backbone)));
  norm = register_module(
      "norm",
      torch::nn::LayerNorm(
          torch::nn::LayerNormOptions({config_.backbone_features()}).eps(nn::kNormEpsilon)));
}

torch::Tensor BackboneImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  if (resnet) return resnet->forward_features(x, mask);
  return norm->forward(qna_vit->forward_features(x, mask));
}

void BackboneImpl::train(bool on) {
  Cloneable::train(on);
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* norm = module->as<torch::nn::BatchNorm2dImpl>()) norm->eval();
  }
}

void BackboneImpl::freeze_first_stage() {
  if (resnet) return resnet->freeze_first_stage();
  for (const auto& item : qna_vit->named_parameters()) {
    const bool first = item.key().starts_with("stem.") || item.key().starts_with("stages.0.");
    if (first) item.value().requires_grad_(false);
  }
}

torch::Tensor BackboneImpl::mask_of(const torch::Tensor& mask) const {
  if (resnet) return resnet->mask_of(mask);
  return qna_vit->mask_at(mask, qna_vit->stages.size() - 1);
}

// ---- heads ----

BoxHeadImpl::BoxHeadImpl(int64_t features) : features_(features) { BoxHeadImpl::reset(); }

void BoxHeadImpl::reset() {
  layers = register_module("layers", torch::nn::ModuleList(torch::nn::Linear(features_, features_),
                                                           torch::nn::Linear(features_, features_),
                                                           torch::nn::Linear(features_, 4)));
}

torch::Tensor BoxHeadImpl::forward(const torch::Tensor& x) {
  torch::Tensor y = x;
  for (size_t i = 0; i < layers->size(); ++i) {
    y = layers->at<torch::nn::LinearImpl>(i).forward(y);
    if (i + 1 < layers->size()) y = y.relu_();
  }
  return y.sigmoid();
}

// ---- network ----

DetrImpl::DetrImpl(const DetrConfig& config) : config_(config) {
  check(config);
  DetrImpl::reset();
}

void DetrImpl::reset() {
  const c10::InferenceMode counted(false);  // as in QnAViT
  const DetrConfig& c = config_;
  transformer = register_module("transformer", nn::Transformer(transformer_options(c)));
  class_embed = register_module("class_embed", torch::nn::Linear(c.hidden, c.classes + 1));
  bbox_embed = register_module("bbox_embed", BoxHead(c.hidden));
  query_embed = register_module("query_embed", torch::nn::Embedding(c.queries, c.hidden));
  input_proj = register_module("input_proj", torch::nn::Conv2d(torch::nn::Conv2dOptions(
                                                 c.backbone_features(), c.hidden, 1)));
  backbone_ = register_module(
      "backbone", torch::nn::ModuleList(Backbone(c), nn::PositionCode(c.positions, c.hidden)));
}

void DetrImpl::forget_packed_weights() {
  if (backbone().qna_vit) backbone().qna_vit->forget_packed_weights();
  transformer->encoder->forget_packed_weights();
}

DetrFeatures DetrImpl::forward_features(const torch::Tensor& x, const torch::Tensor& mask) {
  qna::check(!mask.defined() || (mask.dim() == 3 && mask.scalar_type() == torch::kBool),
             "Detr: mask must be bool [batch, height, width], got {}",
             mask.defined() ? ops::sizes_text(mask.sizes()) : "");
  // A mask costs time even where it hides nothing, as in a batch of one image.
  const torch::Tensor pixels = mask.defined() && mask.all().item<bool>() ? torch::Tensor() : mask;
  const torch::Tensor map = backbone().forward(x, pixels);
  const torch::Tensor map_mask = backbone().mask_of(pixels);
  qna::check(!map_mask.defined() || map_mask.any(2).any(1).all().item<bool>(),
             "Detr: each image must have its top left pixel inside the mask, got one without");
  DetrFeatures features{.map = torch::linear(map, input_proj->weight.flatten(1), input_proj->bias),
                        .positions = {},
                        .mask = map_mask};
  features.positions = positions().forward(features.map, map_mask);
  features.map = transformer->forward_encoder(features.map, features.positions, map_mask);
  return features;
}

DetrOutput DetrImpl::forward_head(const DetrFeatures& features) {
  torch::Tensor states = transformer->forward_decoder(features.map, features.positions,
                                                      features.mask, query_embed->weight);
  if (!config_.aux_loss) states = states.narrow(0, states.size(0) - 1, 1);
  return {.logits = class_embed->forward(states), .boxes = bbox_embed->forward(states)};
}

DetrOutput DetrImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  return forward_head(forward_features(x, mask));
}

torch::Tensor DetrImpl::decoder_attention(const DetrFeatures& features) {
  return transformer->decoder_attention(features.map, features.positions, features.mask,
                                        query_embed->weight);
}

}  // namespace qna::models
