// The products in front of attention, where every pixel has a query of its own.
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

namespace qna::nn {

struct QueryKeyValue {
  torch::Tensor query;  // [B, H', W', features]
  torch::Tensor key;    // [B, H, W, features]
  torch::Tensor value;  // like the keys
};

// x [B, H, W, in]; centers [B, H', W', in], the pixels of x that have a query; weight [3 *
// features, in], rows of the queries first. One product where all pixels have one: the results are
// then views of one tensor.
QueryKeyValue project_queries_keys_values(const torch::Tensor& x, const torch::Tensor& centers,
                                          const torch::Tensor& weight);

torch::nn::Linear linear_without_bias(int64_t in, int64_t out);

}  // namespace qna::nn
