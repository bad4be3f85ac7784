#include "qna/nn/convolution.h"

#include "qna/base/error.h"
#include "qna/nn/init.h"
#include "qna/nn/mask.h"
#include "qna/nn/query_projection.h"

namespace qna::nn {
namespace {
constexpr const char* kConvolutionName = "Convolution";
}

ConvolutionImpl::ConvolutionImpl(const ConvolutionOptions& options)
    : options_(config::complete(options)) {
  ConvolutionImpl::reset();
}

void ConvolutionImpl::reset() {
  const auto& o = options_;
  const auto padding = same_padding(o.kernel_size);
  const int64_t taps = o.kernel_size[0] * o.kernel_size[1];
  conv = register_module(
      "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(
                                    o.in_features, o.depthwise ? o.in_features : o.out_features,
                                    {o.kernel_size[0], o.kernel_size[1]})
                                    .stride({o.stride[0], o.stride[1]})
                                    .padding({padding[0], padding[2]})
                                    .groups(o.depthwise ? o.in_features : 1)
                                    .bias(false)));
  lecun_normal_(conv->weight, o.depthwise ? taps : taps * o.in_features);
  if (o.depthwise) {
    proj = register_module("proj", linear_without_bias(o.in_features, o.out_features));
    lecun_normal_(proj->weight, o.in_features);
  }
}

torch::Tensor ConvolutionImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  check_map(x, options_.in_features, mask, kConvolutionName);
  torch::Tensor map = zero_masked(x, mask).permute({0, 3, 1, 2});  // channels-last memory
  // An even window has one row and column more behind than the convolution adds on both sides.
  const int64_t bottom = 1 - options_.kernel_size[0] % 2, right = 1 - options_.kernel_size[1] % 2;
  if (bottom + right > 0) map = torch::constant_pad_nd(map, {0, right, 0, bottom});
  const torch::Tensor mixed = conv->forward(map).permute({0, 2, 3, 1});
  return proj ? proj->forward(mixed) : mixed.contiguous();
}

void ConvolutionImpl::pretty_print(std::ostream& stream) const {
  const auto& o = options_;
  stream << "qna::nn::Convolution(" << o.in_features << " -> " << o.out_features
         << ", kernel_size=" << o.kernel_size[0] << "x" << o.kernel_size[1]
         << ", stride=" << o.stride[0] << "x" << o.stride[1] << (o.depthwise ? ", depthwise" : "")
         << ")";
}

}  // namespace qna::nn
