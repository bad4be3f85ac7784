#include "bench/train_step.h"

#include <ATen/ops/_fused_adamw.h>
#include <torch/nn/functional/loss.h>

namespace qna::bench {

TrainStep::TrainStep(models::QnAViT model) : model_(std::move(model)) {
  model_->train();
  for (const torch::Tensor& parameter : model_->parameters()) {
    parameters_.push_back(parameter);
    means_.push_back(torch::zeros_like(parameter));
    squares_.push_back(torch::zeros_like(parameter));
    steps_.push_back(torch::zeros({}));
  }
}

void TrainStep::run(const torch::Tensor& images) {
  for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  const torch::Tensor labels = torch::arange(images.size(0)) % model_->config().classes;
  torch::nn::functional::cross_entropy(model_->forward(images), labels).backward();

  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
  for (torch::Tensor& step : steps_) step.add_(1);
  at::_fused_adamw_(parameters_, gradients, means_, squares_, /*max_exp_avg_sqs=*/{}, steps_,
                    /*lr=*/1e-4, /*beta1=*/0.9, /*beta2=*/0.999, /*weight_decay=*/0.05,
                    /*eps=*/1e-8, /*amsgrad=*/false, /*maximize=*/false);
}

}  // namespace qna::bench
