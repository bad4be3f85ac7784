#include "qna/nn/multihead_attention.h"

#include <torch/nn/init.h>

#include <cmath>
#include <limits>

#include "qna/base/error.h"
#include "qna/nn/dropout.h"

namespace qna::nn {
namespace {

// What every head makes of queries and keys: [B, heads, N, M].
torch::Tensor softmax_weights(const std::vector<torch::Tensor>& qk, const torch::Tensor& mask) {
  const double scale = 1 / std::sqrt(static_cast<double>(qk[0].size(-1)));
  torch::Tensor scores = torch::matmul(qk[0] * scale, qk[1].transpose(-2, -1));
  if (mask.defined()) {
    scores = scores.masked_fill(~mask.view({mask.size(0), 1, 1, mask.size(1)}),
                                -std::numeric_limits<double>::infinity());
  }
  return scores.softmax(-1);
}

}  // namespace

MultiheadAttentionImpl::MultiheadAttentionImpl(const MultiheadAttentionOptions& options)
    : options_(options) {
  check(options.features >= 1, "MultiheadAttention: features must be at least 1, got {}",
        options.features);
  check(options.heads >= 1 && options.features % options.heads == 0,
        "MultiheadAttention: heads must divide features ({}), got {}", options.features,
        options.heads);
  check(options.dropout >= 0 && options.dropout < 1,
        "MultiheadAttention: dropout must be at least 0 and below 1, got {}", options.dropout);
  MultiheadAttentionImpl::reset();
}

void MultiheadAttentionImpl::reset() {
  const int64_t features = options_.features;
  in_proj_weight = register_parameter("in_proj_weight", torch::empty({3 * features, features}));
  in_proj_bias = register_parameter("in_proj_bias", torch::zeros({3 * features}));
  out_proj = register_module("out_proj", torch::nn::Linear(features, features));
  torch::nn::init::xavier_uniform_(in_proj_weight);
  torch::nn::init::xavier_uniform_(out_proj->weight);
  torch::nn::init::zeros_(out_proj->bias);
}

std::vector<torch::Tensor> MultiheadAttentionImpl::project(const torch::Tensor& x, int64_t first,
                                                           int64_t count) const {
  const int64_t features = options_.features;
  const torch::Tensor weight = in_proj_weight.narrow(0, first * features, count * features);
  const torch::Tensor bias = in_proj_bias.narrow(0, first * features, count * features);
  return torch::linear(x, weight, bias)
      .view({x.size(0), x.size(1), count, options_.heads, features / options_.heads})
      .permute({2, 0, 3, 1, 4})  // [count, B, heads, N, dim]
      .unbind();
}

std::vector<torch::Tensor> MultiheadAttentionImpl::queries_and_keys(
    const torch::Tensor& query, const torch::Tensor& key) const {
  if (query.is_same(key)) return project(query, 0, 2);
  return {project(query, 0, 1)[0], project(key, 1, 1)[0]};
}

torch::Tensor MultiheadAttentionImpl::forward(const torch::Tensor& query, const torch::Tensor& key,
                                              const torch::Tensor& value,
                                              const torch::Tensor& mask) {
  const std::vector<torch::Tensor> qk = queries_and_keys(query, key);
  const torch::Tensor values = project(value, 2, 1)[0];
  torch::Tensor mixed;
  if (is_training() && options_.dropout > 0) {  // LibTorch's fused form knows no dropout on the CPU
    const torch::Tensor weights = softmax_weights(qk, mask);
    mixed = torch::matmul(nn::dropout(weights, options_.dropout, true), values);
  } else {
    std::optional<torch::Tensor> taking_part;
    if (mask.defined()) taking_part = mask.view({mask.size(0), 1, 1, mask.size(1)});
    mixed = at::scaled_dot_product_attention(qk[0], qk[1], values, taking_part);
  }
  return out_proj->forward(mixed.transpose(1, 2).flatten(2));
}

}  // namespace qna::nn
