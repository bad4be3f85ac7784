// AdamW (Loshchilov and Hutter 2019) over LibTorch's fused update: one pass over each parameter.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <vector>

#include "qna/recipe/recipe.h"

namespace qna::train {

class AdamW {
 public:
  // Throws qna::Error when a group's pattern fits no parameter.
  AdamW(const torch::nn::Module& model, const Optimizer& options);

  // lr: of this step, before the groups' scales. Parameters without a gradient stay as they are.
  void step(double lr);
  void zero_grad();

  // The norm of all gradients together; infinity or NaN where one is not finite.
  double gradient_norm() const;
  void scale_gradients(double factor);

  // "optimizer/exp_avg/<parameter>" and so on: what a checkpoint holds. load_state throws
  // qna::Error where a tensor is missing or has another size.
  std::vector<std::pair<std::string, torch::Tensor>> state() const;
  void load_state(const std::map<std::string, torch::Tensor>& tensors);

  const std::vector<torch::Tensor>& parameters() const { return parameters_; }
  // "4 groups: ..." for people: how many parameters have which settings.
  std::vector<std::string> describe() const;

 private:
  struct Group {
    std::string match;  // empty: what fits no pattern
    double lr_scale;
    double weight_decay;
    std::vector<size_t> members;  // of parameters_
  };
  Optimizer options_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> exp_avg_;
  std::vector<torch::Tensor> exp_avg_sq_;
  std::vector<torch::Tensor> steps_;  // one number each, as the fused update wants it
  std::vector<Group> groups_;
};

}  // namespace qna::train
