// The channel-mixing half of a block: two linear layers with an activation between.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "qna/nn/activation.h"

namespace qna::nn {

struct MlpOptions {
  int64_t features = 0;  // in and out; must be given
  int64_t hidden = 0;    // 0: 4 x features
  kernels::Activation activation = kernels::Activation::kGeluTanh;
};

class MlpImpl : public torch::nn::Cloneable<MlpImpl> {
 public:
  explicit MlpImpl(const MlpOptions& options);
  torch::Tensor forward(const torch::Tensor& x);
  void reset() override;
  const MlpOptions& options() const { return options_; }

  torch::nn::Linear fc1{nullptr};
  torch::nn::Linear fc2{nullptr};

 private:
  MlpOptions options_;
};

TORCH_MODULE(Mlp);

}  // namespace qna::nn
