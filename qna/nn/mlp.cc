#include "qna/nn/mlp.h"
#include <torch/utils.h>

#include "qna/base/error.h"
#include "qna/nn/init.h"

namespace qna::nn {

MlpImpl::MlpImpl(const MlpOptions& options) : options_(options) {
  check(options.features >= 1, "Mlp: features must be at least 1, got {}", options.features);
  check(options.hidden >= 0, "Mlp: hidden must be at least 1 (or 0: 4 x features), got {}",
        options.hidden);
  if (options_.hidden == 0) options_.hidden = 4 * options_.features;
  MlpImpl::reset();
}

void MlpImpl::reset() {
  fc1 = register_module("fc1", torch::nn::Linear(options_.features, options_.hidden));
  fc2 = register_module("fc2", torch::nn::Linear(options_.hidden, options_.features));
  for (torch::nn::Linear layer : {fc1, fc2}) {
    lecun_normal_(layer->weight, layer->weight.size(1));
    torch::NoGradGuard no_grad;
    layer->bias.zero_();
  }
}

torch::Tensor MlpImpl::forward(const torch::Tensor& x) {
  return fc2->forward(activate(fc1->forward(x), options_.activation));
}

}  // namespace qna::nn
