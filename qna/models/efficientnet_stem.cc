#include "qna/models/efficientnet_stem.h"

#include <torch/nn/functional/padding.h>
#include <torch/nn/init.h>

#include "qna/nn/mask.h"

namespace qna::models {
namespace {

namespace F = torch::nn::functional;

// For what ReLU cuts in half.
template <typename Layer>
Layer for_relu(Layer layer) {
  torch::nn::init::kaiming_normal_(layer->weight, 0, torch::kFanIn, torch::kReLU);
  torch::nn::init::zeros_(layer->bias);
  return layer;
}

torch::nn::Conv2d relu_convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                                   int64_t groups) {
  // Where it halves, padding is not the same on all sides.
  const int64_t padding = stride == 1 ? kernel / 2 : 0;
  return for_relu(torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding).groups(groups)));
}

// x [B, H, W, C], `before` zeros in front of its first row and column: a position's place in the
// image must not depend on the image's size.
torch::Tensor convolve_relu6(const torch::Tensor& x, torch::nn::Conv2d& conv, int64_t before) {
  torch::Tensor map = x.permute({0, 3, 1, 2});
  if (conv->options.stride()->at(0) > 1) {
    const int64_t behind = conv->options.kernel_size()->at(0) - 1 - before;
    map = F::pad(map, F::PadFuncOptions({before, behind, before, behind}));
  }
  map = conv->forward(map);
  return torch::relu6_(map).permute({0, 2, 3, 1});
}

// As a convolution of 1 x 1, which LibTorch runs about twice as fast as products of few features.
enum class Relu6 { kNo, kYes };
torch::Tensor pointwise(const torch::Tensor& x, torch::nn::Linear& linear, Relu6 relu6) {
  const torch::Tensor kernel = linear->weight.unsqueeze(-1).unsqueeze(-1);
  torch::Tensor y = torch::conv2d(x.permute({0, 3, 1, 2}), kernel, linear->bias);
  if (relu6 == Relu6::kYes) torch::relu6_(y);
  return y.permute({0, 2, 3, 1});
}

}  // namespace

// ---- block ----

InvertedResidualImpl::InvertedResidualImpl(const config::InvertedResidualOptions& options)
    : options_(options) {
  InvertedResidualImpl::reset();
}

void InvertedResidualImpl::reset() {
  const auto& o = options_;
  if (o.expands()) {
    expand = register_module("expand", for_relu(torch::nn::Linear(o.in_features, o.hidden)));
  }
  depthwise = register_module("depthwise",
                              relu_convolution(o.hidden, o.hidden, o.kernel, o.stride, o.hidden));
  project = register_module("project", for_relu(torch::nn::Linear(o.hidden, o.features)));
}

torch::Tensor InvertedResidualImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  const torch::Tensor wide = expand ? pointwise(x, expand, Relu6::kYes) : x;
  const torch::Tensor mixed = convolve_relu6(nn::zero_masked(wide, mask), depthwise, options_.padding());
  const torch::Tensor y = pointwise(mixed, project, Relu6::kNo);
  return options_.has_skip() ? x + y : y;
}

// ---- stem ----

EfficientNetStemImpl::EfficientNetStemImpl(const config::QnAViTConfig& config)
    : channels_(config.in_channels), features_(config.base_dim) {
  EfficientNetStemImpl::reset();
}

void EfficientNetStemImpl::reset() {
  conv = register_module("conv", relu_convolution(channels_, config::kEfficientNetFirst, 3,
                                                  /*stride=*/2, /*groups=*/1));
  blocks = torch::nn::ModuleList();
  for (const auto& options : config::efficientnet_blocks()) {
    blocks->push_back(InvertedResidual(options));
  }
  register_module("blocks", blocks);
  out = register_module("out", for_relu(torch::nn::Linear(config::kEfficientNetLast, features_)));
}

torch::Tensor EfficientNetStemImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  torch::Tensor map = convolve_relu6(nn::zero_masked(x, mask), conv, 0);
  torch::Tensor here = nn::every_nth(mask, 2);
  for (const auto& module : *blocks) {
    auto& block = *module->as<InvertedResidualImpl>();
    map = block.forward(map, here);
    here = nn::every_nth(here, block.depthwise->options.stride()->at(0));
  }
  return nn::zero_masked(pointwise(map, out, Relu6::kNo), here).contiguous();
}

}  // namespace qna::models
