// The running mean of a model's weights (exponential moving average).
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <vector>

#include "qna/tasks/task.h"

namespace qna::train {

class Ema {
 public:
  // decay 0: none, and all calls do nothing.
  Ema(const torch::nn::Module& model, double decay);

  bool on() const { return decay_ > 0; }
  double decay() const { return decay_; }
  // The mean of this parameter, which AdamW::step moves with the parameter; undefined if there is
  // none.
  torch::Tensor mean_of(const torch::Tensor& parameter) const;
  // Exchanges the weights and their mean; done twice it undoes itself.
  void swap();
  // The mean, or what stands in its place while swapped, by the parameters' names.
  checkpoint::NamedTensors tensors() const;

 private:
  const double decay_;  // mean = decay * mean + (1 - decay) * weight, after every step
  std::vector<std::string> names_;
  std::vector<torch::Tensor> weights_;
  std::vector<torch::Tensor> means_;
};

}  // namespace qna::train
