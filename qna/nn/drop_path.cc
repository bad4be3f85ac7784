#include "qna/nn/drop_path.h"

#include <vector>

namespace qna::nn {

torch::Tensor drop_path(const torch::Tensor& x, double rate, bool training) {
  if (!training || rate == 0) return x;
  std::vector<int64_t> sizes(x.dim(), 1);
  sizes[0] = x.size(0);
  const torch::Tensor keep = torch::empty(sizes, x.options()).bernoulli_(1 - rate);
  return x * keep.div_(1 - rate);
}

}  // namespace qna::nn
