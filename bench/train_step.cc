#include "bench/train_step.h"

#include <torch/nn/functional/loss.h>

namespace qna::bench {

constexpr double kLearningRate = 1e-4;

TrainStep::TrainStep(models::QnAViT model)
    : model_(std::move(model)), optimizer_(*model_, {.lr = kLearningRate, .weight_decay = 0.05}) {
  model_->train();
}

void TrainStep::run(const torch::Tensor& images) {
  optimizer_.zero_grad();
  const torch::Tensor labels = torch::arange(images.size(0)) % model_->config().classes;
  torch::nn::functional::cross_entropy(model_->forward(images), labels).backward();
  optimizer_.step(kLearningRate);
}

}  // namespace qna::bench
