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
  // decay 0: none, and all calls do nothing. warm_up: see decay_at().
  Ema(const torch::nn::Module& model, double decay, bool warm_up = false);

  bool on() const { return decay_ > 0; }
  // Behind so many steps. A mean with a decay of 0.998 has a memory of 500 steps, of which the
  // random weights of the beginning would be a large part in a short run: with a warm-up the decay
  // rises as (1 + step) / (10 + step) until it is reached.
  double decay_at(int64_t step) const;
  // The mean of this parameter, which AdamW::step moves with the parameter; undefined if there is
  // none.
  torch::Tensor mean_of(const torch::Tensor& parameter) const;
  // Exchanges the weights and their mean; done twice it undoes itself.
  void swap();
  // The mean, or what stands in its place while swapped, by the parameters' names.
  checkpoint::NamedTensors tensors() const;

 private:
  const double decay_;  // mean = decay * mean + (1 - decay) * weight, after every step
  const bool warm_up_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> weights_;
  std::vector<torch::Tensor> means_;
};

}  // namespace qna::train
