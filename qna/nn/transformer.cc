#include "qna/nn/transformer.h"

#include <torch/nn/init.h>

#include "qna/base/error.h"
#include "qna/nn/dropout.h"

namespace qna::nn {
namespace {

// PyTorch's 1e-5, not the 1e-6 of QnA blocks, which comes from Flax.
torch::nn::LayerNorm layer_norm(const TransformerOptions& options) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.features}));
}

MultiheadAttention multihead_attention(const TransformerOptions& options) {
  return MultiheadAttention(MultiheadAttentionOptions{
      .features = options.features, .heads = options.heads, .dropout = options.dropout});
}

torch::nn::Linear linear(int64_t in, int64_t out) {
  torch::nn::Linear layer(in, out);
  torch::nn::init::xavier_uniform_(layer->weight);
  return layer;
}

// The second branch of a layer, which all of them share.
torch::Tensor feed_forward(const torch::Tensor& x, torch::nn::Linear& linear1,
                           torch::nn::Linear& linear2, double dropout, bool training) {
  const torch::Tensor hidden = nn::dropout(linear1->forward(x).relu_(), dropout, training);
  return nn::dropout(linear2->forward(hidden), dropout, training);
}

}  // namespace

// ---- encoder ----

EncoderLayerImpl::EncoderLayerImpl(const TransformerOptions& options) : options_(options) {
  EncoderLayerImpl::reset();
}

void EncoderLayerImpl::reset() {
  self_attn = register_module("self_attn", multihead_attention(options_));
  linear1 = register_module("linear1", linear(options_.features, options_.feedforward));
  linear2 = register_module("linear2", linear(options_.feedforward, options_.features));
  norm1 = register_module("norm1", layer_norm(options_));
  norm2 = register_module("norm2", layer_norm(options_));
}

torch::Tensor EncoderLayerImpl::forward(const torch::Tensor& x, const torch::Tensor& positions,
                                        const torch::Tensor& mask) {
  const auto attend = [&](const torch::Tensor& y) {
    const torch::Tensor placed = y + positions;
    return nn::dropout(self_attn->forward(placed, placed, y, mask), options_.dropout,
                       is_training());
  };
  const auto mlp = [&](const torch::Tensor& y) {
    return feed_forward(y, linear1, linear2, options_.dropout, is_training());
  };
  if (options_.pre_norm) {
    const torch::Tensor y = x + attend(norm1->forward(x));
    return y + mlp(norm2->forward(y));
  }
  const torch::Tensor y = norm1->forward(x + attend(x));
  return norm2->forward(y + mlp(y));
}

EncoderImpl::EncoderImpl(const TransformerOptions& options) : options_(options) {
  EncoderImpl::reset();
}

void EncoderImpl::reset() {
  layers = torch::nn::ModuleList();
  for (const bool is_qna : options_.encoder_layers()) {
    if (is_qna) {
      layers->push_back(Block(options_.qna_block));
    } else {
      layers->push_back(EncoderLayer(options_));
    }
  }
  register_module("layers", layers);
  if (options_.has_encoder_norm()) norm = register_module("norm", layer_norm(options_));
}

torch::Tensor EncoderImpl::forward(const torch::Tensor& x, const torch::Tensor& positions,
                                   const torch::Tensor& mask) {
  const torch::Tensor flat_positions = positions.flatten(1, 2);
  const torch::Tensor flat_mask = mask.defined() ? mask.flatten(1, 2) : mask;
  torch::Tensor map = x;
  for (const auto& layer : *layers) {
    if (auto* block = layer->as<BlockImpl>()) {
      map = block->forward(map, mask);
    } else {
      map = layer->as<EncoderLayerImpl>()
                ->forward(map.flatten(1, 2), flat_positions, flat_mask)
                .view(x.sizes());
    }
  }
  return norm ? norm->forward(map) : map;
}

// ---- decoder ----

DecoderLayerImpl::DecoderLayerImpl(const TransformerOptions& options) : options_(options) {
  DecoderLayerImpl::reset();
}

void DecoderLayerImpl::reset() {
  self_attn = register_module("self_attn", multihead_attention(options_));
  multihead_attn = register_module("multihead_attn", multihead_attention(options_));
  linear1 = register_module("linear1", linear(options_.features, options_.feedforward));
  linear2 = register_module("linear2", linear(options_.feedforward, options_.features));
  norm1 = register_module("norm1", layer_norm(options_));
  norm2 = register_module("norm2", layer_norm(options_));
  norm3 = register_module("norm3", layer_norm(options_));
}

torch::Tensor DecoderLayerImpl::forward(const torch::Tensor& x, const Memory& memory) {
  const auto attend = [&](const torch::Tensor& y) {
    const torch::Tensor placed = y + memory.queries;
    return nn::dropout(self_attn->forward(placed, placed, y), options_.dropout, is_training());
  };
  const auto look = [&](const torch::Tensor& y) {
    return nn::dropout(
        multihead_attn->forward(y + memory.queries, memory.keys, memory.values, memory.mask),
        options_.dropout, is_training());
  };
  const auto mlp = [&](const torch::Tensor& y) {
    return feed_forward(y, linear1, linear2, options_.dropout, is_training());
  };
  if (options_.pre_norm) {
    torch::Tensor y = x + attend(norm1->forward(x));
    y = y + look(norm2->forward(y));
    return y + mlp(norm3->forward(y));
  }
  torch::Tensor y = norm1->forward(x + attend(x));
  y = norm2->forward(y + look(y));
  return norm3->forward(y + mlp(y));
}

DecoderImpl::DecoderImpl(const TransformerOptions& options) : options_(options) {
  DecoderImpl::reset();
}

void DecoderImpl::reset() {
  layers = torch::nn::ModuleList();
  for (int64_t i = 0; i < options_.decoder_blocks; ++i) layers->push_back(DecoderLayer(options_));
  register_module("layers", layers);
  norm = register_module("norm", layer_norm(options_));
}

torch::Tensor DecoderImpl::forward(Memory memory, const NextQueries& next_queries) {
  // The first layer starts from nothing but the queries, which every layer adds.
  torch::Tensor x =
      torch::zeros({memory.values.size(0), memory.queries.size(-2), memory.values.size(2)},
                   memory.values.options());
  std::vector<torch::Tensor> results;
  for (const auto& layer : *layers) {
    x = layer->as<DecoderLayerImpl>()->forward(x, memory);
    results.push_back(norm->forward(x));
    if (next_queries) memory.queries = next_queries(results.back());
  }
  return torch::stack(results);
}

// ---- both ----

TransformerImpl::TransformerImpl(const TransformerOptions& options)
    : options_(config::complete(options)) {
  TransformerImpl::reset();
}

void TransformerImpl::reset() {
  encoder = register_module("encoder", Encoder(options_));
  decoder = register_module("decoder", Decoder(options_));
}

torch::Tensor TransformerImpl::forward_encoder(const torch::Tensor& x,
                                               const torch::Tensor& positions,
                                               const torch::Tensor& mask) {
  return encoder->forward(x, positions, mask);
}

torch::Tensor TransformerImpl::forward_decoder(const torch::Tensor& memory,
                                               const torch::Tensor& positions,
                                               const torch::Tensor& mask,
                                               const torch::Tensor& queries,
                                               const DecoderImpl::NextQueries& next_queries) {
  return decoder->forward({.queries = queries,
                           .values = memory.flatten(1, 2),
                           .keys = (memory + positions).flatten(1, 2),
                           .mask = mask.defined() ? mask.flatten(1, 2) : mask},
                          next_queries);
}

}  // namespace qna::nn
