#include "qna/models/detr.h"

#include "qna/base/error.h"
#include "qna/base/text.h"

namespace qna::models {
namespace {

// Centres all over the image, as evenly as any number of them can be, of one size.
void spread_anchors(torch::Tensor& logits) {
  torch::NoGradGuard no_grad;
  const int64_t count = logits.size(0);
  // Martin Roberts' R2 sequence: multiples of the powers of 1 / 1.3247..., modulo 1.
  const auto n = torch::arange(count, torch::kDouble) + 0.5;
  constexpr double kPlastic = 1.32471795724474602596;
  const auto x = (n / kPlastic).frac();
  const auto y = (n / (kPlastic * kPlastic)).frac();
  const auto size = torch::full_like(x, 0.2);
  logits.copy_(torch::stack({x, y, size, size}, 1).logit(1e-3));
}

// At first every query looks around its anchor, and leaves it as it is.
void start_from_anchors(BoxHeadImpl& head, nn::DecoderImpl& decoder) {
  torch::NoGradGuard no_grad;
  auto& last = head.layers->at<torch::nn::LinearImpl>(head.layers->size() - 1);
  last.weight.zero_();
  last.bias.zero_();
  for (const auto& layer : *decoder.layers) {
    torch::Tensor weight = layer->as<nn::DecoderLayerImpl>()->multihead_attn->in_proj_weight;
    // Queries and keys are projected alike, so what lies near an anchor has the largest products;
    // 2 x 2 makes them large enough to matter.
    const int64_t features = weight.size(1);
    torch::Tensor queries = weight.narrow(0, 0, features).mul_(2);
    weight.narrow(0, features, features).copy_(queries);
  }
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
  const torch::AutoGradMode gradients(torch::GradMode::is_enabled() && !frozen_);
  if (resnet) return resnet->forward_features(x, mask);
  return norm->forward(qna_vit->forward_features(x, mask));
}

void BackboneImpl::train(bool on) {
  Cloneable::train(on && !frozen_);
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

void BackboneImpl::freeze() {
  frozen_ = true;
  for (torch::Tensor& parameter : parameters()) parameter.requires_grad_(false);
  eval();
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
  return y;
}

// ---- network ----

DetrImpl::DetrImpl(const DetrConfig& config) : config_(config) {
  check(config);
  DetrImpl::reset();
}

void DetrImpl::reset() {
  const DetrConfig& c = config_;
  transformer = register_module("transformer", nn::Transformer(config::transformer_options(c)));
  class_embed = register_module("class_embed", torch::nn::Linear(c.hidden, c.classes + 1));
  bbox_embed = register_module("bbox_embed", BoxHead(c.hidden));
  if (c.anchors) {
    refpoint_embed = register_module("refpoint_embed", torch::nn::Embedding(c.queries, 4));
    spread_anchors(refpoint_embed->weight);
    start_from_anchors(*bbox_embed, *transformer->decoder);
  } else {
    query_embed = register_module("query_embed", torch::nn::Embedding(c.queries, c.hidden));
  }
  input_proj = register_module("input_proj", torch::nn::Conv2d(torch::nn::Conv2dOptions(
                                                 c.backbone_features(), c.hidden, 1)));
  backbone_ = register_module(
      "backbone", torch::nn::ModuleList(Backbone(c), nn::PositionCode(c.positions, c.hidden,
                                                                      config::sine_options(c))));
}

DetrFeatures DetrImpl::forward_features(const torch::Tensor& x, const torch::Tensor& mask) {
  qna::check(!mask.defined() || (mask.dim() == 3 && mask.scalar_type() == torch::kBool),
             "Detr: mask must be bool [batch, height, width], got {}",
             mask.defined() ? in_brackets(mask.sizes()) : "");
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

// What the decoder's blocks add to their queries: learned vectors, the same in all blocks; or the
// position codes of boxes, which every block refines.
class DetrImpl::Queries {
 public:
  explicit Queries(DetrImpl& model) : model_(model), anchored_(model.config_.anchors) {
    if (anchored_) anchors_ = model.refpoint_embed->weight;
  }
  torch::Tensor first() { return anchored_ ? code() : model_.query_embed->weight; }
  nn::DecoderImpl::NextQueries next() {
    if (!anchored_) return {};
    return [this](const torch::Tensor& result) {
      const torch::Tensor refined = model_.bbox_embed->forward(result) + anchors_;
      boxes_.push_back(refined.sigmoid());
      anchors_ = refined.detach();  // each block answers for its own step
      return code();
    };
  }
  // Of the blocks from `first` on, whose results all are.
  torch::Tensor boxes(const torch::Tensor& results, int64_t first) {
    if (anchored_) return torch::stack(boxes_).slice(0, first);
    return model_.bbox_embed->forward(results.slice(0, first)).sigmoid();
  }

 private:
  torch::Tensor code() { return model_.positions().at(anchors_.narrow(-1, 0, 2).sigmoid()); }

  DetrImpl& model_;
  bool anchored_;
  torch::Tensor anchors_;  // centre and size, before the sigmoid: [(B,) queries, 4]
  std::vector<torch::Tensor> boxes_;
};

DetrOutput DetrImpl::forward_head(const DetrFeatures& features) {
  Queries queries(*this);
  const torch::Tensor states = transformer->forward_decoder(
      features.map, features.positions, features.mask, queries.first(), queries.next());
  const int64_t first = config_.aux_loss ? 0 : states.size(0) - 1;
  return {.logits = class_embed->forward(states.slice(0, first)),
          .boxes = queries.boxes(states, first)};
}

DetrOutput DetrImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  return forward_head(forward_features(x, mask));
}

}  // namespace qna::models
