// AdamW (Loshchilov and Hutter 2019): one pass over the parameters for the norm of the gradients,
// one for clipping, the step and the running mean of the weights.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "qna/kernels/adamw.h"
#include "qna/recipe/recipe.h"
#include "qna/train/ema.h"

namespace qna::train {

class AdamW {
 public:
  // Throws qna::Error when a group's pattern fits no parameter.
  // ema: moved by every step as well, or null; outlives this.
  // depth_of: a parameter's, by its name, for options.depth_decay; empty: 0.
  // companion: trained with the model at depth 0, or null; its parameters' names begin with
  // "companion.".
  using DepthOf = std::function<int64_t(const std::string& parameter)>;
  AdamW(const torch::nn::Module& model, const Optimizer& options, const Ema* ema = nullptr,
        const DepthOf& depth_of = {}, const torch::nn::Module* companion = nullptr);

  // lr: of this step, before the groups' scales; gradient_factor: of all gradients, such as to clip
  // them. Parameters without a gradient stay as they are.
  void step(double lr, double gradient_factor = 1);
  void zero_grad();

  // The norm of all gradients together; infinity or NaN where one is not finite.
  double gradient_norm() const;

  // "optimizer/exp_avg/<parameter>" and so on: what a checkpoint holds. load_state throws
  // qna::Error where a tensor is missing or has another size.
  std::vector<std::pair<std::string, torch::Tensor>> state() const;
  void load_state(const std::map<std::string, torch::Tensor>& tensors);

  const std::vector<torch::Tensor>& parameters() const { return parameters_; }
  const std::vector<int64_t>& depths() const { return depths_; }  // of the parameters
  // "4 groups: ..." for people: how many parameters have which settings.
  std::vector<std::string> describe() const;

 private:
  void add(const std::string& name, const torch::Tensor& parameter, int64_t depth);
  struct Group {
    std::string match;  // empty: what fits no pattern
    double lr_scale;
    double weight_decay;
    std::vector<size_t> members;  // of parameters_
  };
  // What the kernel takes; `held` keeps gradients that had to be laid out anew.
  std::vector<kernels::AdamWParameter> arrays(std::vector<torch::Tensor>& held) const;

  Optimizer options_;
  const Ema* ema_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  std::vector<int64_t> depths_;
  std::vector<torch::Tensor> exp_avg_;
  std::vector<torch::Tensor> exp_avg_sq_;
  std::vector<torch::Tensor> averages_;  // of the running mean, or undefined
  std::vector<torch::Tensor> steps_;     // one number each
  std::vector<Group> groups_;
};

}  // namespace qna::train
