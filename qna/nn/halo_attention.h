// The attention of HaloNet ("Scaling Local Self-Attention for Parameter Efficient Visual
// Backbones", CVPR 2021): the queries of a block share the keys of the block and a halo around it.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "qna/nn/attention_tiles.h"
#include "qna/nn/mixer.h"

namespace qna::nn {

using config::HaloAttentionOptions;

// With a relative bias per head. Any height and width: what lies outside the map is no key.
class HaloAttentionImpl : public torch::nn::Cloneable<HaloAttentionImpl>, public Mixer {
 public:
  explicit HaloAttentionImpl(const HaloAttentionOptions& options);

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {}) override;

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  const HaloAttentionOptions& options() const { return options_; }
  int64_t in_features() const override { return options_.in_features; }
  int64_t out_features() const override { return options_.out_features; }
  std::array<int64_t, 2> kernel_size() const override { return options_.kernel_size; }
  std::array<int64_t, 2> stride() const override { return options_.stride; }

  torch::nn::Linear qkv{nullptr};   // rows: q, k, v, each [heads, dim]
  torch::nn::Linear proj{nullptr};  // both without bias
  // Indexed by key minus query, the smallest first: [2 bh + 2 halo - sh, 2 bw + 2 halo - sw, heads]
  torch::Tensor relative_bias;

 private:
  TileAttention tiles() const;
  HaloAttentionOptions options_;
};

TORCH_MODULE(HaloAttention);

}  // namespace qna::nn
