// Where a network looks, layer by layer: nn/attention_maps.h for the layers of a QnAViT on a given
// image.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qna/models/qna_vit.h"
#include "qna/nn/attention_maps.h"

namespace qna::models {

struct AttentionLayer {
  std::string name;  // "stages.2.blocks.5", "stages.2.downsample" or "head"
  int64_t stage = 0;
  bool learned_queries = true;  // a QnA layer; else self-attention
  int64_t heads = 0;
  int64_t stride = 1;  // how many pixels one position of the map it looks at stands for
};

// All layers of the network that attend, in their order.
std::vector<AttentionLayer> attention_layers(const QnAViT& model);

// One of each kind that is worth a look first: the last QnA block of every stage and the network's
// last self-attention block.
std::vector<AttentionLayer> typical_attention_layers(const QnAViT& model);

// By its name, of which "stages." and "blocks." may be left out: "2.5", "2.downsample". Throws
// qna::Error that lists the names.
AttentionLayer find_attention_layer(const QnAViT& model, std::string_view name);

struct LayerAttention {
  AttentionLayer layer;
  // Self-attention counts as one query, and has no weight.
  nn::AttentionMaps maps;
  // Undefined for self-attention, for the head, whose only window is the map, and if not wanted.
  nn::AttentionKernels kernels;
  int64_t every = 1;  // kernels: of every so many windows
};

struct AttentionOptions {
  std::vector<std::string> layers;
  // The longer side of all kernels side by side, in weights: where it would be longer, only those
  // of every n-th window are made. 0: none.
  int64_t kernel_side = 0;
};

// images [B, H, W, channels]. Runs the network up to the last of the layers; the results stand in
// the network's order.
std::vector<LayerAttention> attention_of(QnAViT& model, const torch::Tensor& images,
                                         const AttentionOptions& options);

}  // namespace qna::models
