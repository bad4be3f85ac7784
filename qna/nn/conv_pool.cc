#include "qna/nn/conv_pool.h"

#include <limits>

#include "qna/base/error.h"
#include "qna/nn/init.h"
#include "qna/nn/mask.h"
#include "qna/nn/norm.h"

namespace qna::nn {
namespace {
constexpr const char* kConvPoolName = "ConvPool";
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
}  // namespace

torch::Tensor max_pool_by_two(const torch::Tensor& x) {
  return torch::max_pool2d(torch::constant_pad_nd(x, {0, 2, 0, 2}, kMinusInfinity), {3, 3}, {2, 2});
}

ConvPoolImpl::ConvPoolImpl(const ConvPoolOptions& options) : options_(config::complete(options)) {
  ConvPoolImpl::reset();
}

void ConvPoolImpl::reset() {
  const auto& o = options_;
  conv = register_module(
      "conv",
      torch::nn::Conv2d(torch::nn::Conv2dOptions(o.in_features, o.out_features, 3).padding(1)));
  norm = register_module("norm", layer_norm(o.out_features));
  lecun_normal_(conv->weight, 9 * o.in_features);
  torch::NoGradGuard no_grad;
  conv->bias.zero_();
}

torch::Tensor ConvPoolImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  check_map(x, options_.in_features, mask, kConvPoolName);
  torch::Tensor map = conv->forward(zero_masked(x, mask).permute({0, 3, 1, 2}));
  map = norm->forward(map.permute({0, 2, 3, 1}));
  map = fill_masked(map, mask, kMinusInfinity);  // what is no image must not win the maximum
  map = max_pool_by_two(map.permute({0, 3, 1, 2})).permute({0, 2, 3, 1});
  return zero_masked(map, every_nth(mask, 2)).contiguous();  // places without any image
}

}  // namespace qna::nn
