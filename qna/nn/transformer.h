// The transformer of DETR, "End-to-End Object Detection with Transformers" (ECCV 2020): an encoder
// over the positions of a map and a decoder over object queries that look at the map. Its
// parameters have DETR's names.
//
// Beside DETR's: some of the encoder's blocks may be replaced by QnA blocks, as in the DETR-QnA of
// "Learned Queries for Efficient Local Attention".
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <functional>

#include "qna/nn/block.h"
#include "qna/nn/multihead_attention.h"

namespace qna::nn {

using config::TransformerOptions;

// Attention between all positions, then two products with ReLU between.
class EncoderLayerImpl : public torch::nn::Cloneable<EncoderLayerImpl> {
 public:
  explicit EncoderLayerImpl(const TransformerOptions& options);
  // x [B, N, C]; positions [B, N, C] or [1, N, C]; mask [B, N] bool, true takes part.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& positions,
                        const torch::Tensor& mask);
  void reset() override;

  MultiheadAttention self_attn{nullptr};
  torch::nn::Linear linear1{nullptr}, linear2{nullptr};
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};

 private:
  TransformerOptions options_;
};
TORCH_MODULE(EncoderLayer);

class EncoderImpl : public torch::nn::Cloneable<EncoderImpl> {
 public:
  explicit EncoderImpl(const TransformerOptions& options);
  // x [B, H, W, C], mask [B, H, W], positions [B, H, W, C] or [1, H, W, C]. What is masked does not
  // change the rest, and the result there means nothing.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& positions,
                        const torch::Tensor& mask);
  void reset() override;

  torch::nn::ModuleList layers{nullptr};  // of EncoderLayer and Block, in the order they run
  torch::nn::LayerNorm norm{nullptr};     // where the last layer leaves its sum as it is

 private:
  TransformerOptions options_;
};
TORCH_MODULE(Encoder);

// Attention between the queries, attention from the queries to the map, two products.
class DecoderLayerImpl : public torch::nn::Cloneable<DecoderLayerImpl> {
 public:
  explicit DecoderLayerImpl(const TransformerOptions& options);

  // What stays the same in all layers.
  struct Memory {
    torch::Tensor queries;  // [Q, C] or [B, Q, C], added to what attends
    torch::Tensor values;   // [B, N, C], the encoder's result
    torch::Tensor keys;     // the same with the position code added
    torch::Tensor mask;     // [B, N] bool, true takes part
  };
  torch::Tensor forward(const torch::Tensor& x, const Memory& memory);  // x [B, Q, C]
  void reset() override;

  MultiheadAttention self_attn{nullptr}, multihead_attn{nullptr};
  torch::nn::Linear linear1{nullptr}, linear2{nullptr};
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr}, norm3{nullptr};

 private:
  TransformerOptions options_;
};
TORCH_MODULE(DecoderLayer);

class DecoderImpl : public torch::nn::Cloneable<DecoderImpl> {
 public:
  using Memory = DecoderLayerImpl::Memory;
  explicit DecoderImpl(const TransformerOptions& options);
  // The result of every layer, behind the norm: [layers, B, Q, C]. `next_queries` makes the queries
  // of the layer behind of a layer's result; without it all layers have the same.
  using NextQueries = std::function<torch::Tensor(const torch::Tensor& result)>;
  torch::Tensor forward(Memory memory, const NextQueries& next_queries = {});
  void reset() override;

  torch::nn::ModuleList layers{nullptr};
  torch::nn::LayerNorm norm{nullptr};

 private:
  TransformerOptions options_;
};
TORCH_MODULE(Decoder);

class TransformerImpl : public torch::nn::Cloneable<TransformerImpl> {
 public:
  explicit TransformerImpl(const TransformerOptions& options);

  // x [B, H, W, C], positions [B or 1, H, W, C], mask [B, H, W] -> [B, H, W, C].
  torch::Tensor forward_encoder(const torch::Tensor& x, const torch::Tensor& positions,
                                const torch::Tensor& mask = {});
  // memory: the encoder's result; queries [Q, C] or [B, Q, C] -> [layers, B, Q, C].
  torch::Tensor forward_decoder(const torch::Tensor& memory, const torch::Tensor& positions,
                                const torch::Tensor& mask, const torch::Tensor& queries,
                                const DecoderImpl::NextQueries& next_queries = {});
  void reset() override;

  Encoder encoder{nullptr};
  Decoder decoder{nullptr};

 private:
  TransformerOptions options_;
};
TORCH_MODULE(Transformer);

}  // namespace qna::nn
