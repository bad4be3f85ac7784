#include "qna/models/resnet.h"

#include <torch/nn/functional/pooling.h>
#include <torch/nn/init.h>

#include "qna/base/error.h"
#include "qna/base/text.h"
#include "qna/config/layers.h"
#include "qna/nn/mask.h"

namespace qna::models {
namespace {

namespace F = torch::nn::functional;

constexpr double kNormEpsilon = config::kTorchNormEpsilon;

torch::nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1,
                              int64_t dilation = 1) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(in, out, kernel)
                             .stride(stride)
                             .dilation(dilation)
                             .padding(kernel / 2 * dilation)
                             .bias(false));
  torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
  return conv;
}

// Every convolution and pooling with stride 2 makes ceil(n / 2) of n, so position i of a map with
// stride s stands for pixel s i: it counts where that pixel does.
torch::Tensor every(const torch::Tensor& mask, int64_t stride) {
  return mask.slice(1, 0, std::nullopt, stride).slice(2, 0, std::nullopt, stride);
}

// In place, on the result of a convolution, which its backward pass does not need.
torch::Tensor& zero_(torch::Tensor& map, const torch::Tensor& outside) {
  return outside.defined() ? map.masked_fill_(outside, 0) : map;
}

}  // namespace

// ---- frozen BatchNorm ----

FrozenBatchNormImpl::FrozenBatchNormImpl(int64_t features) : features_(features) {
  FrozenBatchNormImpl::reset();
}

void FrozenBatchNormImpl::reset() {
  weight = register_buffer("weight", torch::ones({features_}));
  bias = register_buffer("bias", torch::zeros({features_}));
  running_mean = register_buffer("running_mean", torch::zeros({features_}));
  running_var = register_buffer("running_var", torch::ones({features_}));
}

torch::Tensor FrozenBatchNormImpl::behind(const torch::nn::Conv2dImpl& conv,
                                          const torch::Tensor& x) const {
  // (conv - mean) / sqrt(variance + epsilon) * weight + bias
  const torch::Tensor scale = weight * (running_var + kNormEpsilon).rsqrt();
  const torch::Tensor shift = bias - running_mean * scale;
  const auto& o = conv.options;
  return torch::conv2d(x, conv.weight * scale.view({-1, 1, 1, 1}), shift, o.stride(),
                       std::get<torch::ExpandingArray<2>>(o.padding()), o.dilation());
}

// ---- block ----

ResNetBlockImpl::ResNetBlockImpl(const Options& options) : options_(options) {
  ResNetBlockImpl::reset();
}

void ResNetBlockImpl::reset() {
  const Options& o = options_;
  if (o.basic) {
    conv1 = register_module("conv1", convolution(o.in_features, o.features, 3, o.stride));
    bn1 = register_module("bn1", FrozenBatchNorm(o.features));
    conv2 = register_module("conv2", convolution(o.features, o.features, 3));
    bn2 = register_module("bn2", FrozenBatchNorm(o.features));
  } else {
    const int64_t inner = o.inner();
    conv1 = register_module("conv1", convolution(o.in_features, inner, 1));
    bn1 = register_module("bn1", FrozenBatchNorm(inner));
    conv2 = register_module("conv2", convolution(inner, inner, 3, o.stride, o.dilation));
    bn2 = register_module("bn2", FrozenBatchNorm(inner));
    conv3 = register_module("conv3", convolution(inner, o.features, 1));
    bn3 = register_module("bn3", FrozenBatchNorm(o.features));
  }
  if (o.reshapes()) {
    downsample = register_module(
        "downsample", torch::nn::ModuleList(convolution(o.in_features, o.features, 1, o.stride),
                                            FrozenBatchNorm(o.features)));
  }
}

torch::Tensor ResNetBlockImpl::forward(const torch::Tensor& x, const torch::Tensor& outside_in,
                                       const torch::Tensor& outside_out) {
  torch::Tensor skip = x;
  if (downsample) {
    skip =
        downsample->at<FrozenBatchNormImpl>(1).behind(downsample->at<torch::nn::Conv2dImpl>(0), x);
  }
  torch::Tensor y = bn1->behind(*conv1, x);
  if (options_.basic) {
    y = bn2->behind(*conv2, zero_(y, outside_out).relu_()).add_(skip);
    return zero_(y, outside_out).relu_();  // the next block begins with a 3 x 3 convolution
  }
  y = bn2->behind(*conv2, zero_(y, outside_in).relu_()).relu_();
  return bn3->behind(*conv3, y).add_(skip).relu_();
}

// ---- network ----

ResNetImpl::ResNetImpl(const ResNetConfig& config) : config_(config) {
  check(config);
  ResNetImpl::reset();
}

void ResNetImpl::reset() {
  conv1 = register_module("conv1", convolution(3, 64, 7, 2));
  bn1 = register_module("bn1", FrozenBatchNorm(64));
  const auto stage = [&](int index) {
    torch::nn::ModuleList blocks;
    for (const auto& options : config::resnet_stage(config_, index)) {
      blocks->push_back(ResNetBlock(options));
    }
    return blocks;
  };
  layer1 = register_module("layer1", stage(0));
  layer2 = register_module("layer2", stage(1));
  layer3 = register_module("layer3", stage(2));
  layer4 = register_module("layer4", stage(3));
  if (config_.classes > 0)
    fc = register_module("fc", torch::nn::Linear(config_.features(), config_.classes));
}

void ResNetImpl::freeze_first_stage() {
  for (torch::Tensor& parameter : conv1->parameters()) parameter.requires_grad_(false);
  for (torch::Tensor& parameter : layer1->parameters()) parameter.requires_grad_(false);
}

torch::Tensor ResNetImpl::mask_of(const torch::Tensor& mask) const {
  return mask.defined() ? every(mask, config_.stride()).contiguous() : mask;
}

torch::Tensor ResNetImpl::forward_features(const torch::Tensor& x, const torch::Tensor& mask) {
  qna::check(x.defined() && x.dim() == 4 && x.size(3) == 3 && x.size(1) > 0 && x.size(2) > 0,
             "ResNet: images must be [batch, height, width, 3], got {}",
             x.defined() ? in_brackets(x.sizes()) : "an undefined tensor");
  qna::check(x.is_floating_point(), "ResNet: images must be of a floating type");
  qna::check(!mask.defined() ||
                 (mask.scalar_type() == torch::kBool && mask.sizes() == x.sizes().slice(0, 3)),
             "ResNet: mask must be bool of {}, got {}", in_brackets(x.sizes().slice(0, 3)),
             mask.defined() ? in_brackets(mask.sizes()) : "");
  const auto outside_at = [&](int64_t stride) {
    return mask.defined() ? every(mask, stride).logical_not().unsqueeze(1) : mask;
  };
  // Channels stay last in memory; only their place among the dimensions is LibTorch's.
  torch::Tensor map = bn1->behind(*conv1, nn::zero_masked(x, mask).permute({0, 3, 1, 2}));
  map = zero_(map, outside_at(2)).relu_();
  // Behind ReLU zeros win no maximum, as the border does not; but the last pixels of an image may
  // win one outside of it.
  map = F::max_pool2d(map, F::MaxPool2dFuncOptions(3).stride(2).padding(1));
  int64_t stride = 4;
  torch::Tensor outside = outside_at(stride);
  zero_(map, outside);
  for (const torch::nn::ModuleList& stage : {layer1, layer2, layer3, layer4}) {
    const bool halves = stage.ptr() != layer1.ptr() && stride < config_.stride();
    if (halves) stride *= 2;
    const torch::Tensor outside_behind = halves ? outside_at(stride) : outside;
    for (const auto& block : *stage) {
      map = block->as<ResNetBlockImpl>()->forward(map, outside, outside_behind);
      outside = outside_behind;
    }
  }
  return map.permute({0, 2, 3, 1});
}

torch::Tensor ResNetImpl::forward_head(const torch::Tensor& features, const torch::Tensor& mask) {
  torch::Tensor mean;
  if (mask.defined()) {
    mean = nn::zero_masked(features, mask).sum({1, 2}) / mask.sum({1, 2}).clamp_min(1).unsqueeze(1);
  } else {
    mean = features.mean({1, 2});
  }
  return fc ? fc->forward(mean) : mean;
}

torch::Tensor ResNetImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  return forward_head(forward_features(x, mask), mask_of(mask));
}

}  // namespace qna::models
