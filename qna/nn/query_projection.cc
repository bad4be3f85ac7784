#include "qna/nn/query_projection.h"

namespace qna::nn {

QueryKeyValue project_queries_keys_values(const torch::Tensor& x, const torch::Tensor& centers,
                                          const torch::Tensor& weight) {
  if (centers.sizes() == x.sizes()) {
    const auto parts = torch::linear(x, weight).chunk(3, -1);
    return {parts[0], parts[1], parts[2]};
  }
  const int64_t features = weight.size(0) / 3;
  const auto parts = torch::linear(x, weight.narrow(0, features, 2 * features)).chunk(2, -1);
  return {torch::linear(centers, weight.narrow(0, 0, features)), parts[0], parts[1]};
}

torch::nn::Linear linear_without_bias(int64_t in, int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

}  // namespace qna::nn
