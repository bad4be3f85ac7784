#include "qna/nn/drop_path.h"

#include <vector>

namespace qna::nn {

torch::Tensor drop_path_factors(const torch::Tensor& x, double rate, bool training) {
  if (!training || rate == 0) return {};
  return torch::empty({x.size(0)}, x.options()).bernoulli_(1 - rate).div_(1 - rate);
}

torch::Tensor drop_path(const torch::Tensor& x, double rate, bool training) {
  const torch::Tensor factors = drop_path_factors(x, rate, training);
  if (!factors.defined()) return x;
  std::vector<int64_t> sizes(x.dim(), 1);
  sizes[0] = x.size(0);
  return x * factors.view(sizes);
}

}  // namespace qna::nn
