#include "qna/train/adamw.h"

#include <fnmatch.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "qna/base/error.h"

namespace qna::train {

AdamW::AdamW(const torch::nn::Module& model, const Optimizer& options) : options_(options) {
  for (const ParameterGroup& group : options.groups) {
    const double decay = group.weight_decay < 0 ? options.weight_decay : group.weight_decay;
    groups_.push_back({group.match, group.lr_scale, decay, {}});
  }
  groups_.push_back({"", 1, options.weight_decay, {}});
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    size_t group = 0;
    while (group + 1 < groups_.size() &&
           fnmatch(groups_[group].match.c_str(), item.key().c_str(), 0) != 0) {
      ++group;
    }
    groups_[group].members.push_back(parameters_.size());
    names_.push_back(item.key());
    parameters_.push_back(item.value());
    exp_avg_.push_back(torch::zeros_like(item.value()));
    exp_avg_sq_.push_back(torch::zeros_like(item.value()));
    steps_.push_back(torch::zeros({}, torch::kFloat));
  }
  for (size_t i = 0; i + 1 < groups_.size(); ++i) {
    check(!groups_[i].members.empty(),
          "recipe: the pattern '{}' of optimizer.group fits no parameter that is not in a group "
          "before it; names are such as '{}'",
          groups_[i].match, names_.empty() ? "" : names_.front());
  }
}

void AdamW::step(double lr) {
  torch::NoGradGuard no_grad;
  for (const Group& group : groups_) {
    std::vector<torch::Tensor> parameters, gradients, exp_avg, exp_avg_sq, steps;
    for (const size_t i : group.members) {
      if (!parameters_[i].grad().defined()) continue;
      parameters.push_back(parameters_[i]);
      gradients.push_back(parameters_[i].grad());
      exp_avg.push_back(exp_avg_[i]);
      exp_avg_sq.push_back(exp_avg_sq_[i]);
      steps_[i] += 1;
      steps.push_back(steps_[i]);
    }
    if (parameters.empty()) continue;
    at::_fused_adamw_(parameters, gradients, exp_avg, exp_avg_sq, /*max_exp_avg_sqs=*/{}, steps,
                      lr * group.lr_scale, options_.betas[0], options_.betas[1], group.weight_decay,
                      options_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
  }
}

void AdamW::zero_grad() {
  for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

double AdamW::gradient_norm() const {
  double sum = 0;
  for (const torch::Tensor& parameter : parameters_) {
    if (!parameter.grad().defined()) continue;
    const double norm = parameter.grad().detach().norm().item<double>();
    sum += norm * norm;
  }
  return std::sqrt(sum);
}

void AdamW::scale_gradients(double factor) {
  torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : parameters_) {
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
  }
}

std::vector<std::pair<std::string, torch::Tensor>> AdamW::state() const {
  std::vector<std::pair<std::string, torch::Tensor>> out;
  for (size_t i = 0; i < names_.size(); ++i) {
    out.emplace_back("optimizer/exp_avg/" + names_[i], exp_avg_[i]);
    out.emplace_back("optimizer/exp_avg_sq/" + names_[i], exp_avg_sq_[i]);
    out.emplace_back("optimizer/step/" + names_[i], steps_[i]);
  }
  return out;
}

void AdamW::load_state(const std::map<std::string, torch::Tensor>& tensors) {
  torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : state()) {
    const auto found = tensors.find(name);
    check(found != tensors.end(), "checkpoint: there is no tensor '{}'", name);
    check(found->second.sizes() == tensor.sizes(), "checkpoint: '{}' has another size", name);
    torch::Tensor to = tensor;
    to.copy_(found->second);
  }
}

std::vector<std::string> AdamW::describe() const {
  std::vector<std::string> lines;
  for (const Group& group : groups_) {
    if (group.members.empty()) continue;
    int64_t numbers = 0;
    for (const size_t i : group.members) numbers += parameters_[i].numel();
    lines.push_back(fmt::format("{}: {} tensors, {} parameters, weight decay {}, rate x {}",
                                group.match.empty() ? "all others" : group.match,
                                group.members.size(), numbers, group.weight_decay, group.lr_scale));
  }
  return lines;
}

}  // namespace qna::train
