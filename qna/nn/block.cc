#include "qna/nn/block.h"

#include <torch/nn/functional/padding.h>
#include <torch/nn/functional/pooling.h>

#include "qna/base/error.h"
#include "qna/nn/drop_path.h"
#include "qna/nn/init.h"
#include "qna/nn/mask.h"
#include "qna/ops/fused.h"
#include "qna/ops/mlp_branch.h"
#include "qna/ops/qna_layer.h"

namespace qna::nn {
namespace {

namespace F = torch::nn::functional;

std::optional<torch::Tensor> optional(const torch::Tensor& tensor) {
  return tensor.defined() ? std::make_optional(tensor) : std::nullopt;
}

Sasa make_module(const SasaOptions& options) { return Sasa(options); }
HaloAttention make_module(const HaloAttentionOptions& options) { return HaloAttention(options); }
Convolution make_module(const ConvolutionOptions& options) { return Convolution(options); }
ConvPool make_module(const ConvPoolOptions& options) { return ConvPool(options); }

}  // namespace

BlockImpl::BlockImpl(const BlockOptions& options)
    : options_(options), shape_(config::block_shape(options)) {
  BlockImpl::reset();
}

void BlockImpl::reset() {
  const BlockOptions& o = options_;
  const config::BlockShape& s = shape_;
  norm1 = register_module("norm1", layer_norm(s.in_features));
  if (o.qna.has_value()) {
    qna = register_module("qna", QnA(*o.qna));
  } else if (o.attention.has_value()) {
    attention = register_module("attention", WindowSelfAttention(*o.attention));
  } else {
    mixer = std::visit(
        [&](const auto& options) -> std::shared_ptr<Mixer> {
          return register_module("mixer", make_module(options));
        },
        *o.mixer);
  }
  if (s.strided()) {
    skip = register_module("skip",
                           torch::nn::Conv2d(torch::nn::Conv2dOptions(s.in_features, s.features, 1)
                                                 .stride({s.stride[0], s.stride[1]})
                                                 .bias(false)));
    lecun_normal_(skip->weight, s.in_features);
  }
  norm2 = register_module("norm2", layer_norm(s.features));
  mlp = register_module(
      "mlp",
      Mlp(MlpOptions{.features = s.features, .hidden = s.hidden, .activation = o.activation}));
  if (o.layer_scale > 0) {
    scale1 = register_parameter("scale1", torch::full({s.features}, o.layer_scale));
    scale2 = register_parameter("scale2", torch::full({s.features}, o.layer_scale));
  }
}

torch::Tensor BlockImpl::skip_input(const torch::Tensor& x) const {
  if (!options_.average_pool_skip) {
    return x.slice(1, 0, std::nullopt, shape_.stride[0])
        .slice(2, 0, std::nullopt, shape_.stride[1]);
  }
  const auto padding = qna ? *qna->options().padding : same_padding(shape_.kernel_size);
  const torch::Tensor map = F::pad(
      x.permute({0, 3, 1, 2}), F::PadFuncOptions({padding[2], padding[3], padding[0], padding[1]}));
  return F::avg_pool2d(map, F::AvgPool2dFuncOptions({shape_.kernel_size[0], shape_.kernel_size[1]})
                                .stride({shape_.stride[0], shape_.stride[1]}))
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

torch::Tensor BlockImpl::forward(const torch::Tensor& input, const torch::Tensor& mask) {
  const torch::Tensor x = zero_masked(input, mask);
  torch::Tensor y;
  const bool fused = ops::is_fused(ops::OperatorClass::kBranch, {x});
  const auto attended =
      attention && fused ? attention->parameters_for_branch(*norm1, x, mask) : std::nullopt;
  if (qna && fused) {
    const ops::QnALayerBranch branch{
        .epsilon = kNormEpsilon,
        .drop_factor =
            skip ? std::nullopt : optional(drop_path_factors(x, options_.drop_path, is_training())),
        .residual = !skip};
    y = ops::qna_layer_branch(x, folded_layer(), optional(mask), qna->geometry(), branch);
    if (skip) y = y + skipped(x);
  } else if (attended.has_value()) {
    ops::WindowSelfAttentionBranchParameters first = *attended;
    if (scale1.defined()) first.proj_weight = first.proj_weight * scale1.unsqueeze(1);
    y = ops::window_self_attention_branch(
        x, first, optional(mask),
        optional(drop_path_factors(x, options_.drop_path, is_training())));
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
ops::QnALayerParameters BlockImpl::folded_layer() const {
  ops::QnALayerParameters p = qna->parameters_for_layer(norm1.get());
  if (scale1.defined()) {
    p.out_weight = p.out_weight * scale1;
    if (p.out_bias.has_value()) p.out_bias = *p.out_bias * scale1;
  }
  return p;
}

}  // namespace qna::nn
