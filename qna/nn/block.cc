#include "qna/nn/block.h"

#include <torch/nn/functional/padding.h>
#include <torch/nn/functional/pooling.h>

#include "qna/base/error.h"
#include "qna/kernels/implementation.h"
#include "qna/nn/drop_path.h"
#include "qna/nn/init.h"
#include "qna/nn/mask.h"
#include "qna/ops/inference.h"
#include "qna/ops/mlp_branch.h"
#include "qna/ops/self_attention.h"

namespace qna::nn {
namespace {

namespace F = torch::nn::functional;

const kernels::Norm kNorm{.wanted = true, .epsilon = static_cast<float>(kNormEpsilon)};

std::optional<torch::Tensor> optional(const torch::Tensor& tensor) {
  return tensor.defined() ? std::make_optional(tensor) : std::nullopt;
}

// The kernels normalise without LayerNorm's scale g and shift s, which are linear:
// W (g x + s) + b = (W g) x + (W s + b). A scale of the output goes the same way.
kernels::PackedWeights pack_folded(const torch::Tensor& weight, const torch::Tensor& bias,
                                   const torch::nn::LayerNorm& norm, const torch::Tensor& scale) {
  torch::Tensor w = weight;
  torch::Tensor b = bias;
  if (norm) {
    b = torch::mv(weight, norm->bias);
    if (bias.defined()) b = b + bias;
    w = weight * norm->weight;
  }
  if (scale.defined()) {
    w = w * scale.unsqueeze(1);
    if (b.defined()) b = b * scale;
  }
  return ops::pack_linear(w, optional(b));
}

Sasa make_module(const SasaOptions& options) { return Sasa(options); }
HaloAttention make_module(const HaloAttentionOptions& options) { return HaloAttention(options); }
Convolution make_module(const ConvolutionOptions& options) { return Convolution(options); }
ConvPool make_module(const ConvPoolOptions& options) { return ConvPool(options); }

}  // namespace

struct BlockPack {
  std::optional<ops::PackedLayer> qna;
  kernels::PackedWeights qkv;
  kernels::PackedWeights proj;
  torch::Tensor bias;  // of self-attention in windows of a fixed size
  kernels::PackedWeights skip;
  ops::PackedMlp mlp;
};

BlockImpl::BlockImpl(const BlockOptions& options) : options_(options) {
  check(options.qna.has_value() + options.attention.has_value() + options.mixer.has_value() == 1,
        "Block: exactly one of qna, attention and mixer must be given");
  check(options.drop_path >= 0 && options.drop_path < 1,
        "Block: drop_path must be at least 0 and below 1, got {}", options.drop_path);
  check(options.mlp_ratio > 0, "Block: mlp_ratio must be above 0, got {}", options.mlp_ratio);
  BlockImpl::reset();
}

void BlockImpl::reset() {
  const BlockOptions& o = options_;
  int64_t in = 0;
  kernel_size_ = stride_ = {1, 1};
  if (o.qna.has_value()) {
    in = o.qna->in_features;
    norm1 = register_module("norm1", layer_norm(in));
    qna = register_module("qna", QnA(*o.qna));
    features_ = qna->options().out_features;
    kernel_size_ = qna->options().kernel_size;
    stride_ = qna->options().stride;
  } else if (o.attention.has_value()) {
    in = features_ = o.attention->features;
    norm1 = register_module("norm1", layer_norm(in));
    attention = register_module("attention", WindowSelfAttention(*o.attention));
  } else {
    in = std::visit([](const auto& options) { return options.in_features; }, *o.mixer);
    norm1 = register_module("norm1", layer_norm(in));
    mixer = std::visit(
        [&](const auto& options) -> std::shared_ptr<Mixer> {
          return register_module("mixer", make_module(options));
        },
        *o.mixer);
    features_ = mixer->out_features();
    kernel_size_ = mixer->kernel_size();
    stride_ = mixer->stride();
  }
  const bool strided = stride_ != std::array<int64_t, 2>{1, 1};
  check(strided || features_ == in,
        "Block: without stride the layer must keep the {} features, got {}", in, features_);
  if (strided) {
    skip = register_module("skip", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, features_, 1)
                                                         .stride({stride_[0], stride_[1]})
                                                         .bias(false)));
    lecun_normal_(skip->weight, in);
  }
  norm2 = register_module("norm2", layer_norm(features_));
  const int64_t hidden = std::llround(o.mlp_ratio * static_cast<double>(features_));
  check(hidden >= 1, "Block: mlp_ratio must leave at least 1 of {} features, got {}", features_,
        o.mlp_ratio);
  mlp = register_module(
      "mlp", Mlp(MlpOptions{.features = features_, .hidden = hidden, .activation = o.activation}));
  if (o.layer_scale > 0) {
    scale1 = register_parameter("scale1", torch::full({features_}, o.layer_scale));
    scale2 = register_parameter("scale2", torch::full({features_}, o.layer_scale));
  }
  packed_.clear();
}

torch::Tensor BlockImpl::skip_input(const torch::Tensor& x) const {
  if (!options_.average_pool_skip) {
    return x.slice(1, 0, std::nullopt, stride_[0]).slice(2, 0, std::nullopt, stride_[1]);
  }
  const auto padding = qna ? *qna->options().padding : same_padding(kernel_size_);
  const torch::Tensor map = F::pad(
      x.permute({0, 3, 1, 2}), F::PadFuncOptions({padding[2], padding[3], padding[0], padding[1]}));
  return F::avg_pool2d(map, F::AvgPool2dFuncOptions({kernel_size_[0], kernel_size_[1]})
                                .stride({stride_[0], stride_[1]}))
      .permute({0, 2, 3, 1});
}

torch::Tensor BlockImpl::skipped(const torch::Tensor& x) const {
  return torch::linear(skip_input(x), skip->weight.flatten(1));
}

torch::Tensor BlockImpl::forward_mix(const torch::Tensor& x, const torch::Tensor& mask) {
  const torch::Tensor normed = norm1->forward(x);
  torch::Tensor mixed = qna         ? qna->forward(normed, mask)
                        : attention ? attention->forward(normed, mask)
                                    : mixer->forward(normed, mask);
  if (scale1.defined()) mixed = mixed * scale1;
  return skip ? mixed + skipped(x) : x + drop_path(mixed, options_.drop_path, is_training());
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  const bool random = is_training() && options_.drop_path > 0;
  if (!random && ops::inference_kernels_serve(x)) return forward_fused(x, mask);
  return forward_differentiable(x, mask);
}

torch::Tensor BlockImpl::forward_differentiable(const torch::Tensor& input,
                                                const torch::Tensor& mask) {
  // What follows may be a step of an optimiser that the version counters do not show.
  if (torch::GradMode::is_enabled()) packed_.clear();
  const torch::Tensor x = zero_masked(input, mask);
  torch::Tensor y;
  if (qna && ops::training_kernels_serve(x)) {
    const ops::LayerBranch branch{
        .epsilon = kNormEpsilon,
        .keep =
            skip ? std::nullopt : optional(drop_path_factors(x, options_.drop_path, is_training())),
        .residual = !skip};
    y = ops::layer_branch(x, folded_layer(), optional(mask), qna->geometry(), branch);
    if (skip) y = y + skipped(x);
  } else {
    y = forward_mix(x, mask);
  }
  ops::MlpBranchParameters second{.norm_weight = norm2->weight,
                                  .norm_bias = norm2->bias,
                                  .weight1 = mlp->fc1->weight,
                                  .bias1 = mlp->fc1->bias,
                                  .weight2 = mlp->fc2->weight,
                                  .bias2 = mlp->fc2->bias,
                                  .activation = options_.activation,
                                  .epsilon = kNormEpsilon};
  if (scale2.defined()) {
    second.weight2 = second.weight2 * scale2.unsqueeze(1);
    second.bias2 = second.bias2 * scale2;
  }
  return ops::mlp_branch(y, second,
                         optional(drop_path_factors(y, options_.drop_path, is_training())));
}

// The layer's parameters with the scale and shift of the norm before it and of layer scale inside.
ops::LayerParameters BlockImpl::folded_layer() const {
  ops::LayerParameters p = qna->parameters_for_layer();
  // A shift of the scores is the same for all taps, and the softmax takes it out again.
  const torch::Tensor value_shift = torch::einsum("c,chd->hd", {norm1->bias, p.value_weight});
  p.value_bias = p.value_bias.has_value() ? *p.value_bias + value_shift : value_shift;
  p.value_weight = p.value_weight * norm1->weight.view({-1, 1, 1});
  p.score_weight = p.score_weight * norm1->weight.view({-1, 1, 1});
  if (scale1.defined()) {
    p.out_weight = p.out_weight * scale1;
    if (p.out_bias.has_value()) p.out_bias = *p.out_bias * scale1;
  }
  return p;
}

BlockPack BlockImpl::pack() const {
  BlockPack pack;
  if (qna) {
    pack.qna = ops::pack_layer(folded_layer(), qna->geometry());
    if (skip) pack.skip = ops::pack_linear(skip->weight.flatten(1), std::nullopt);
  } else if (attention) {
    pack.qkv = pack_folded(attention->qkv->weight, {}, norm1, {});
    pack.proj = pack_folded(attention->proj->weight, {}, nullptr, scale1);
    if (!attention->options().global) {
      pack.bias = attention->bias_for(attention->options().window).contiguous();
    }
  }
  pack.mlp = {.expand = pack_folded(mlp->fc1->weight, mlp->fc1->bias, norm2, {}),
              .contract = pack_folded(mlp->fc2->weight, mlp->fc2->bias, nullptr, scale2),
              .activation = options_.activation,
              .norm = kNorm};
  return pack;
}

std::vector<torch::Tensor> BlockImpl::pack_sources() const {
  std::vector<torch::Tensor> sources = {norm1->weight,    norm1->bias,      norm2->weight,
                                        norm2->bias,      mlp->fc1->weight, mlp->fc1->bias,
                                        mlp->fc2->weight, mlp->fc2->bias};
  const auto add = [&](std::initializer_list<torch::Tensor> tensors) {
    for (const torch::Tensor& tensor : tensors) {
      if (tensor.defined()) sources.push_back(tensor);
    }
  };
  add({scale1, scale2});
  if (qna) {
    add({qna->query, qna->key_weight, qna->key_bias, qna->value_weight, qna->value_bias,
         qna->out_weight, qna->out_bias, qna->relative_bias, qna->attention_scale});
    if (skip) add({skip->weight});
  } else if (attention) {
    add({attention->qkv->weight, attention->proj->weight, attention->relative_bias});
  }
  return sources;
}

torch::Tensor BlockImpl::forward_fused(const torch::Tensor& input, const torch::Tensor& mask) {
  const torch::Tensor x = zero_masked(input, mask);
  const std::shared_ptr<const BlockPack> pack =
      packed_.get(pack_sources(), &kernels::chosen_implementation(), [&] { return this->pack(); });
  if (qna) {
    const torch::Tensor residual = skip ? ops::dense(skip_input(x), pack->skip) : x;
    return ops::layer(x, *pack->qna, optional(mask), kNorm, residual, &pack->mlp);
  }
  if (mixer) {
    const torch::Tensor z = forward_mix(x, mask);
    const torch::Tensor hidden =
        ops::dense(z, pack->mlp.expand, {.norm = kNorm, .activation = options_.activation});
    return ops::dense(hidden, pack->mlp.contract, {.residual = z});
  }
  const torch::Tensor qkv = ops::dense(x, pack->qkv, {.norm = kNorm});
  const torch::Tensor mixed = attention->mix(qkv, mask, pack->bias);
  return ops::project_mlp(x, mixed, pack->proj, pack->mlp);
}

}  // namespace qna::nn
