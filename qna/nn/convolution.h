// Convolutions as mixers of neighbours: channels-last in and out.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "qna/nn/mixer.h"

namespace qna::nn {

using config::ConvolutionOptions;

// Padded with zeros by half the window. Without biases, as the attention layers are.
class ConvolutionImpl : public torch::nn::Cloneable<ConvolutionImpl>, public Mixer {
 public:
  explicit ConvolutionImpl(const ConvolutionOptions& options);

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {}) override;

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  const ConvolutionOptions& options() const { return options_; }
  int64_t in_features() const override { return options_.in_features; }
  int64_t out_features() const override { return options_.out_features; }
  std::array<int64_t, 2> kernel_size() const override { return options_.kernel_size; }
  std::array<int64_t, 2> stride() const override { return options_.stride; }

  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear proj{nullptr};  // depth-wise only

 private:
  ConvolutionOptions options_;
};

TORCH_MODULE(Convolution);

}  // namespace qna::nn
