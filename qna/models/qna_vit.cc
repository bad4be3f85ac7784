#include "qna/models/qna_vit.h"

#include <torch/nn/functional/padding.h>
#include <torch/nn/functional/upsampling.h>

#include <limits>

#include "qna/base/error.h"
#include "qna/base/text.h"
#include "qna/config/blocks.h"
#include "qna/nn/init.h"
#include "qna/nn/mask.h"
#include "qna/nn/recompute.h"
#include "qna/ops/geometry.h"

namespace qna::models {
namespace {

namespace F = torch::nn::functional;

int64_t up(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// Zeros at the bottom and right of a channels-last map, up to multiples of `divisor`.
torch::Tensor pad_to(const torch::Tensor& x, int64_t divisor) {
  const int64_t bottom = up(x.size(1), divisor) * divisor - x.size(1);
  const int64_t right = up(x.size(2), divisor) * divisor - x.size(2);
  if (bottom == 0 && right == 0) return x;
  return F::pad(x, F::PadFuncOptions({0, 0, 0, right, 0, bottom}));
}

std::optional<torch::Tensor> optional(const torch::Tensor& tensor) {
  return tensor.defined() ? std::make_optional(tensor) : std::nullopt;
}

torch::Tensor mean_over_positions(const torch::Tensor& x, const torch::Tensor& mask) {
  if (!mask.defined()) return x.mean(at::IntArrayRef{1, 2});
  return nn::zero_masked(x, mask).sum({1, 2}) / mask.sum({1, 2}).clamp_min(1).unsqueeze(1);
}

// LibTorch clones the modules of a list behind the back of whoever else holds them: here the holder
// takes them out of the list again.
template <typename Holder>
void hold_list(std::vector<Holder>& modules, const torch::nn::Module& parent, const char* name) {
  const auto list =
      std::dynamic_pointer_cast<torch::nn::ModuleListImpl>(parent.named_children()[name]);
  for (size_t i = 0; i < modules.size(); ++i) {
    modules[i] = Holder(std::dynamic_pointer_cast<typename Holder::ContainedType>(list->ptr(i)));
  }
}

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

}  // namespace

// ---- stem ----

StemImpl::StemImpl(const QnAViTConfig& config) : config_(config) { StemImpl::reset(); }

void StemImpl::reset() {
  const bool patch = config_.stem == config::StemKind::kPatch;
  const int64_t kernel = patch ? config_.patch_size : 7;
  conv = register_module(
      "conv",
      torch::nn::Conv2d(torch::nn::Conv2dOptions(config_.in_channels, config_.base_dim, kernel)
                            .stride(patch ? config_.patch_size : 2)
                            .bias(false)));
  nn::lecun_normal_(conv->weight, config_.in_channels * kernel * kernel);
  if (!patch) {
    // Flax's momentum 0.9 is LibTorch's 0.1.
    norm = register_module(
        "norm", torch::nn::BatchNorm2d(
                    torch::nn::BatchNorm2dOptions(config_.base_dim).eps(1e-5).momentum(0.1)));
  }
}

torch::Tensor StemImpl::forward_patches(const torch::Tensor& x) {
  const int64_t p = config_.patch_size;
  const torch::Tensor map = pad_to(x, p);
  const int64_t rows = map.size(1) / p, columns = map.size(2) / p;
  const torch::Tensor patches = map.reshape({x.size(0), rows, p, columns, p, x.size(3)})
                                    .transpose(2, 3)
                                    .reshape({x.size(0), rows, columns, p * p * x.size(3)});
  return torch::linear(patches, conv->weight.permute({0, 2, 3, 1}).flatten(1));
}

torch::Tensor StemImpl::forward_convolution(const torch::Tensor& x, const torch::Tensor& mask) {
  // Padding as JAX's 'SAME' has it for even sizes, 2 before and 3 behind; one more behind odd ones.
  const int64_t bottom = 3 + x.size(1) % 2, right = 3 + x.size(2) % 2;
  torch::Tensor map = F::pad(x.permute({0, 3, 1, 2}), F::PadFuncOptions({2, right, 2, bottom}));
  map = nn::activate(norm->forward(conv->forward(map)), config_.activation);
  if (config_.stem == config::StemKind::kResNet) {
    // What is no image must not win the maximum. Filled features last, as they lie in memory.
    map = nn::fill_masked(map.permute({0, 2, 3, 1}), nn::every_nth(mask, 2), kMinusInfinity)
              .permute({0, 3, 1, 2});
    map = nn::max_pool_by_two(map);
  }
  // Places without any image.
  return nn::zero_masked(map.permute({0, 2, 3, 1}), nn::every_nth(mask, config_.stem_stride()))
      .contiguous();
}

torch::Tensor StemImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  const torch::Tensor image = nn::zero_masked(x, mask);
  return config_.stem == config::StemKind::kPatch ? forward_patches(image)
                                                  : forward_convolution(image, mask);
}

// ---- down-sampling other than by a block ----

PatchMergingImpl::PatchMergingImpl(int64_t features) : features_(features) {
  PatchMergingImpl::reset();
}

void PatchMergingImpl::reset() {
  norm = register_module("norm", nn::layer_norm(4 * features_));
  reduction = register_module(
      "reduction",
      torch::nn::Linear(torch::nn::LinearOptions(4 * features_, 2 * features_).bias(false)));
  nn::lecun_normal_(reduction->weight, 4 * features_);
}

torch::Tensor PatchMergingImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  const torch::Tensor map = pad_to(nn::zero_masked(x, mask), 2);
  const int64_t rows = map.size(1) / 2, columns = map.size(2) / 2;
  // Swin's order of the four: by column, then by row.
  const torch::Tensor merged = map.reshape({x.size(0), rows, 2, columns, 2, features_})
                                   .permute({0, 1, 3, 4, 2, 5})
                                   .reshape({x.size(0), rows, columns, 4 * features_});
  return reduction->forward(norm->forward(merged));
}

// ---- stage ----

StageImpl::StageImpl(const QnAViTConfig& config, size_t index, const std::vector<double>& drop_path)
    : config_(config), index_(index), drop_path_(drop_path) {
  StageImpl::reset();
}

void StageImpl::reset() {
  const config::StageConfig& s = config_.stages[index_];
  const int64_t features = config_.features(index_);
  blocks.clear();
  torch::nn::ModuleList list;
  for (int64_t i = 0; i < s.attention_blocks + s.qna_blocks; ++i) {
    blocks.emplace_back(
        i < s.attention_blocks
            ? config::attention_block(config_, index_, drop_path_[i])
            : config::local_block(config_, index_, i - s.attention_blocks, drop_path_[i]));
    list->push_back(blocks.back());
  }
  register_module("blocks", list);
  if (is_last()) return;
  if (config_.downsample == config::Downsample::kPatchMerging) {
    merge = register_module("downsample", PatchMerging(features));
  } else if (config_.downsample == config::Downsample::kConvPool) {
    pool =
        register_module("downsample", nn::ConvPool(nn::ConvPoolOptions{.in_features = features}));
  } else {
    downsample = register_module(
        "downsample", nn::Block(config::downsampling_block(config_, index_, drop_path_.back())));
  }
}

std::shared_ptr<torch::nn::Module> StageImpl::clone(
    const std::optional<torch::Device>& device) const {
  const auto copy = std::dynamic_pointer_cast<StageImpl>(Cloneable::clone(device));
  hold_list(copy->blocks, *copy, "blocks");
  return copy;
}

namespace {
torch::Tensor run_block(nn::Block& block, const torch::Tensor& x, const torch::Tensor& mask,
                        bool checkpointing) {
  if (!checkpointing || !torch::GradMode::is_enabled()) return block->forward(x, mask);
  const auto run = [block, mask](const torch::Tensor& input) mutable {
    return block->forward(input, mask);
  };
  return nn::recompute(run, x, block->parameters());
}
}  // namespace

torch::Tensor StageImpl::forward(const torch::Tensor& x, const torch::Tensor& mask,
                                 bool checkpointing) {
  torch::Tensor map = x;
  for (nn::Block& block : blocks) map = run_block(block, map, mask, checkpointing);
  return map;
}

torch::Tensor StageImpl::forward_downsample(const torch::Tensor& x, const torch::Tensor& mask,
                                            bool checkpointing) {
  if (downsample) return run_block(downsample, x, mask, checkpointing);
  return merge ? merge->forward(x, mask) : pool->forward(x, mask);
}

// ---- head ----

ClassificationHeadImpl::ClassificationHeadImpl(const QnAViTConfig& config) : config_(config) {
  ClassificationHeadImpl::reset();
}

void ClassificationHeadImpl::reset() {
  const size_t last = config_.stages.size() - 1;
  const int64_t features = config_.features(last);
  norm = register_module("norm", nn::layer_norm(features));
  if (config_.head != config::HeadKind::kGap) {
    qna = register_module("qna", nn::QnA(config::head_qna(config_)));
  }
  fc = register_module("fc", torch::nn::Linear(features, config_.classes));
  nn::lecun_normal_(fc->weight, features);
  torch::NoGradGuard no_grad;
  fc->bias.zero_();
}

torch::Tensor resize_window_table(const torch::Tensor& table, std::array<int64_t, 2> window) {
  if (table.size(0) == window[0] && table.size(1) == window[1]) return table;
  const auto options = F::InterpolateFuncOptions()
                           .size(std::vector<int64_t>{window[0], window[1]})
                           .mode(torch::kBicubic)
                           .align_corners(false);
  return F::interpolate(table.flatten(2).permute({2, 0, 1}).unsqueeze(0), options)
      .squeeze(0)
      .permute({1, 2, 0})
      .reshape({window[0], window[1], table.size(2), table.size(3)});
}

// One window over the whole image; its tables, made for the trained size, are resized to the image.
torch::Tensor ClassificationHeadImpl::attend(const torch::Tensor& normed,
                                             const torch::Tensor& mask) {
  const ops::QnALayerParameters parameters = qna->parameters_for_layer();
  const auto run = [&](const torch::Tensor& map, const torch::Tensor& taking_part) {
    ops::QnALayerParameters resized = parameters;
    ops::WindowGeometry geometry = qna->geometry();
    geometry.kernel_size = {map.size(1), map.size(2)};
    for (auto* table : {&resized.bias, &resized.tap_weights}) {
      if (table->has_value()) *table = resize_window_table(**table, {map.size(1), map.size(2)});
    }
    return ops::qna_layer(map, resized, optional(taking_part), geometry).flatten(1);
  };
  return torch::cat(nn::on_each_image(normed, mask, run));
}

torch::Tensor ClassificationHeadImpl::pool(const torch::Tensor& x, const torch::Tensor& mask) {
  const torch::Tensor normed = norm->forward(x);
  switch (config_.head) {
    case config::HeadKind::kGap:
      return mean_over_positions(normed, mask);
    case config::HeadKind::kQnAv1:
      return attend(normed, mask);
    case config::HeadKind::kQnAv2:
      return attend(normed, mask) + mean_over_positions(normed, mask);
  }
  return {};
}

torch::Tensor ClassificationHeadImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  return fc->forward(pool(x, mask));
}

// ---- network ----

QnAViTImpl::QnAViTImpl(const QnAViTConfig& config) : config_(config) {
  check(config);
  QnAViTImpl::reset();
}

void QnAViTImpl::reset() {
  if (config_.stem == config::StemKind::kEfficientNet) {
    efficientnet_stem = register_module("stem", EfficientNetStem(config_));
  } else {
    stem = register_module("stem", Stem(config_));
  }

  // Stochastic depth grows linearly over all blocks; the down-sampling blocks count when they have
  // a rate of their own.
  int64_t blocks = 0;
  for (size_t i = 0; i < config_.stages.size(); ++i) {
    const bool last = i + 1 == config_.stages.size();
    blocks += config_.stages[i].attention_blocks + config_.stages[i].qna_blocks +
              (config_.drop_path_downsample && !last);
  }
  int64_t block = 0;
  const auto next_rate = [&] {
    const double rate = blocks > 1 ? config_.drop_path * block / (blocks - 1) : 0;
    ++block;
    return rate;
  };
  stages.clear();
  torch::nn::ModuleList list;
  for (size_t i = 0; i < config_.stages.size(); ++i) {
    std::vector<double> rates;
    const config::StageConfig& stage = config_.stages[i];
    for (int64_t n = 0; n < stage.attention_blocks + stage.qna_blocks; ++n) {
      rates.push_back(next_rate());
    }
    const bool last = i + 1 == config_.stages.size();
    rates.push_back(config_.drop_path_downsample && !last ? next_rate() : 0);
    stages.emplace_back(config_, i, rates);
    list->push_back(stages.back());
  }
  register_module("stages", list);
  if (config_.classes > 0) head = register_module("head", ClassificationHead(config_));
}

std::shared_ptr<torch::nn::Module> QnAViTImpl::clone(
    const std::optional<torch::Device>& device) const {
  const auto copy = std::dynamic_pointer_cast<QnAViTImpl>(Cloneable::clone(device));
  hold_list(copy->stages, *copy, "stages");
  return copy;
}

torch::nn::Module& QnAViTImpl::any_stem() {
  if (stem) return *stem;
  return *efficientnet_stem;
}

void QnAViTImpl::freeze_stem() {
  frozen_stem_ = true;
  for (const auto& item : any_stem().named_parameters()) {
    if (!item.key().starts_with("out.")) item.value().requires_grad_(false);
  }
  any_stem().eval();
}

void QnAViTImpl::train(bool on) {
  Cloneable::train(on);
  if (frozen_stem_) any_stem().eval();
}

torch::Tensor QnAViTImpl::mask_at(const torch::Tensor& mask, size_t index) const {
  if (!mask.defined()) return mask;
  // A position counts where its first pixel does: for images that begin at the top left, that is
  // where any of its pixels does.
  return nn::every_nth(mask, config_.stride(index)).contiguous();
}

void QnAViTImpl::check_images(const torch::Tensor& x, const torch::Tensor& mask) const {
  qna::check(x.defined() && x.dim() == 4 && x.size(3) == config_.in_channels,
             "QnAViT: images must be [batch, height, width, {}], got {}", config_.in_channels,
             x.defined() ? in_brackets(x.sizes()) : "an undefined tensor");
  qna::check(x.is_floating_point(), "QnAViT: images must be of a floating type");
  qna::check(x.size(1) >= 1 && x.size(2) >= 1, "QnAViT: images must not be empty, got {}",
             in_brackets(x.sizes()));
  qna::check(!mask.defined() ||
                 (mask.scalar_type() == torch::kBool && mask.sizes() == x.sizes().slice(0, 3)),
             "QnAViT: mask must be bool of {}, got {}", in_brackets(x.sizes().slice(0, 3)),
             mask.defined() ? in_brackets(mask.sizes()) : "");
}

torch::Tensor QnAViTImpl::forward_stem(const torch::Tensor& x, const torch::Tensor& mask) {
  return stem ? stem->forward(x, mask) : efficientnet_stem->forward(x, mask);
}

torch::Tensor QnAViTImpl::run_stages(const torch::Tensor& x, const torch::Tensor& mask,
                                     Pyramid* pyramid) {
  torch::Tensor map = forward_stem(x, mask);
  for (size_t i = 0; i < stages.size(); ++i) {
    const torch::Tensor map_mask = mask_at(mask, i);
    map = stages[i]->forward(map, map_mask, checkpointing_);
    if (pyramid != nullptr) {
      pyramid->maps.push_back(map);
      pyramid->masks.push_back(map_mask);
    }
    if (!stages[i]->is_last()) map = stages[i]->forward_downsample(map, map_mask, checkpointing_);
  }
  return map;
}

Pyramid QnAViTImpl::forward_pyramid(const torch::Tensor& x, const torch::Tensor& mask) {
  check_images(x, mask);
  Pyramid pyramid;
  run_stages(x, mask, &pyramid);
  return pyramid;
}

torch::Tensor QnAViTImpl::forward_features(const torch::Tensor& x, const torch::Tensor& mask) {
  check_images(x, mask);
  return run_stages(x, mask, nullptr);
}

torch::Tensor QnAViTImpl::forward_head(const torch::Tensor& features, const torch::Tensor& mask) {
  return head ? head->forward(features, mask) : mean_over_positions(features, mask);
}

torch::Tensor QnAViTImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  return forward_head(forward_features(x, mask), mask_at(mask, stages.size() - 1));
}

}  // namespace qna::models
