#include "qna/nn/qna_layer.h"
#include <torch/utils.h>

#include <cmath>

#include "qna/base/error.h"
#include "qna/nn/init.h"
#include "qna/ops/qna_layer_fold.h"

namespace qna::nn {
namespace {

constexpr const char* kQnAName = "QnA";

}  // namespace

QnAImpl::QnAImpl(const QnAOptions& options)
    : options_(config::complete(options)),
      geometry_{options_.kernel_size, options_.stride, *options_.padding, options_.dilation} {
  QnAImpl::reset();
}

void QnAImpl::reset() {
  const QnAOptions& o = options_;
  const auto parameter = [&](const char* name, at::IntArrayRef sizes) {
    return register_parameter(name, torch::empty(sizes));
  };
  const auto optional_parameter = [&](const char* name, at::IntArrayRef sizes, bool wanted) {
    return wanted ? parameter(name, sizes)
                  : register_parameter(name, torch::Tensor(), /*requires_grad=*/false);
  };
  const int64_t table[] = {o.kernel_size[0], o.kernel_size[1], o.queries, o.heads};
  query = parameter("query", {o.queries, o.features});
  key_weight = parameter("key_weight", {o.in_features, o.features});
  key_bias = optional_parameter("key_bias", {o.features}, o.bias);
  value_weight = parameter("value_weight", {o.in_features, o.features});
  value_bias = optional_parameter("value_bias", {o.features}, o.bias);
  out_weight = parameter("out_weight", {o.features, o.out_features});
  out_bias = optional_parameter("out_bias", {o.out_features}, o.bias);
  relative_bias = optional_parameter("relative_bias", table, o.relative_bias);
  switch (o.attention_scale) {
    case AttentionScale::kPerTap:
    case AttentionScale::kOnes:
      attention_scale = parameter("attention_scale", table);
      break;
    case AttentionScale::kPerQuery:
      attention_scale = parameter("attention_scale", {o.queries, o.heads});
      break;
    default:
      attention_scale = optional_parameter("attention_scale", {}, false);
  }

  // As the authors initialise.
  torch::NoGradGuard no_grad;
  truncated_normal_(query, std::sqrt(1.0 / (o.features / o.heads)));
  for (torch::Tensor* weight : {&key_weight, &value_weight, &out_weight}) {
    lecun_normal_(*weight, weight->size(0));
  }
  for (torch::Tensor* zero : {&key_bias, &value_bias, &out_bias, &relative_bias}) {
    if (zero->defined()) zero->zero_();
  }
  if (attention_scale.defined()) {
    if (o.attention_scale == AttentionScale::kOnes) {
      attention_scale.fill_(1);
    } else {
      attention_scale.normal_(0, 0.02);
    }
  }
}

std::optional<torch::Tensor> QnAImpl::tap_weights() const {
  const QnAOptions& o = options_;
  const std::array<int64_t, 4> table = {o.kernel_size[0], o.kernel_size[1], o.queries, o.heads};
  switch (o.attention_scale) {
    case AttentionScale::kPerTap:
    case AttentionScale::kOnes:
      return attention_scale;
    case AttentionScale::kPerQuery:
      return attention_scale.expand(table);
    case AttentionScale::kAverage:
      return torch::full(table, 1.0 / o.queries, query.options().requires_grad(false));
    case AttentionScale::kSigned: {
      torch::Tensor signs =
          torch::ones({o.queries * o.heads}, query.options().requires_grad(false));
      signs.narrow(0, o.queries * o.heads / 2, o.queries * o.heads / 2).fill_(-1);
      return signs.view({o.queries, o.heads}).expand(table);
    }
    case AttentionScale::kNone:
      return std::nullopt;
  }
  return std::nullopt;
}

ops::QnALayerParameters QnAImpl::parameters_for_layer(const torch::nn::LayerNormImpl* norm) const {
  const QnAOptions& o = options_;
  const auto optional = [](const torch::Tensor& tensor) {
    return tensor.defined() ? std::make_optional(tensor) : std::nullopt;
  };
  ops::QnALayerParameters p =
      ops::fold_qna_layer({.query = query,
                           .key_weight = key_weight,
                           .key_bias = optional(key_bias),
                           .value_weight = value_weight,
                           .value_bias = optional(value_bias),
                           .norm_scale = norm == nullptr ? std::nullopt : optional(norm->weight),
                           .norm_shift = norm == nullptr ? std::nullopt : optional(norm->bias),
                           .heads = o.heads,
                           .normalize = o.normalize_queries,
                           .stop_gradient = o.normalize_stop_gradient});
  p.out_weight = out_weight.view({o.heads, o.features / o.heads, o.out_features});
  p.out_bias = optional(out_bias);
  p.bias = optional(relative_bias);
  p.tap_weights = tap_weights();
  return p;
}

torch::Tensor QnAImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  check(x.defined() && x.dim() == 4 && x.size(3) == options_.in_features,
        "{}: x must be [batch, height, width, {}], got {}", kQnAName, options_.in_features,
        x.defined() ? in_brackets(x.sizes()) : "an undefined tensor");
  return ops::qna_layer(x, parameters_for_layer(),
                        mask.defined() ? std::make_optional(mask) : std::nullopt, geometry_,
                        options_.upsample);
}

void QnAImpl::pretty_print(std::ostream& stream) const {
  const QnAOptions& o = options_;
  stream << "qna::nn::QnA(" << o.in_features << " -> " << o.out_features << ", heads=" << o.heads
         << ", queries=" << o.queries << ", kernel_size=" << o.kernel_size[0] << "x"
         << o.kernel_size[1] << ", stride=" << o.stride[0] << "x" << o.stride[1];
  if (o.upsample > 1) stream << ", upsample=" << o.upsample;
  stream << ")";
}

}  // namespace qna::nn
