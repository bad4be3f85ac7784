#include "qna/nn/init.h"
#include <torch/utils.h>

#include <cmath>

namespace qna::nn {

void truncated_normal_(torch::Tensor& tensor, double stddev) {
  torch::NoGradGuard no_grad;
  // By the inverse of the normal distribution: erf(-2 / sqrt 2) to erf(2 / sqrt 2) covers the
  // range.
  const double edge = std::erf(2.0 / std::sqrt(2.0));
  tensor.uniform_(-edge, edge)
      .erfinv_()
      .mul_(std::sqrt(2.0) * stddev)
      .clamp_(-2 * stddev, 2 * stddev);
}

void lecun_normal_(torch::Tensor& tensor, int64_t fan_in) {
  // 0.87962566... is the standard deviation of a standard normal cut off at -2 and 2.
  truncated_normal_(tensor, std::sqrt(1.0 / static_cast<double>(fan_in)) / 0.87962566103423978);
}

}  // namespace qna::nn
