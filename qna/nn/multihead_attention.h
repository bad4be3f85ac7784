// Attention between any two sequences, with the parameters' names and layout of PyTorch's
// MultiheadAttention.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace qna::nn {

struct MultiheadAttentionOptions {
  int64_t features = 0;  // must be given
  int64_t heads = 8;
  double dropout = 0;  // of the attention weights, in training
};

class MultiheadAttentionImpl : public torch::nn::Cloneable<MultiheadAttentionImpl> {
 public:
  explicit MultiheadAttentionImpl(const MultiheadAttentionOptions& options);

  // query [B, N, C], key and value [B, S, C] -> [B, N, C]. mask [B, S] bool, true takes part.
  // Where query and key are the same tensor, they are multiplied at once.
  torch::Tensor forward(const torch::Tensor& query, const torch::Tensor& key,
                        const torch::Tensor& value, const torch::Tensor& mask = {});

  void reset() override;

  torch::Tensor in_proj_weight;  // rows: q, k, v, each [heads, dim]
  torch::Tensor in_proj_bias;
  torch::nn::Linear out_proj{nullptr};

 private:
  // Parts `first` to `first + count` of the projection of x, with the heads apart:
  // [B, N, C] -> count times [B, heads, N, dim].
  std::vector<torch::Tensor> project(const torch::Tensor& x, int64_t first, int64_t count) const;
  std::vector<torch::Tensor> queries_and_keys(const torch::Tensor& query,
                                              const torch::Tensor& key) const;
  MultiheadAttentionOptions options_;
};

TORCH_MODULE(MultiheadAttention);

}  // namespace qna::nn
