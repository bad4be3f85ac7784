#include "qna/train/adamw.h"

#include <fnmatch.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "qna/base/error.h"
#include "qna/ops/torch_runtime.h"

namespace qna::train {

AdamW::AdamW(const torch::nn::Module& model, const Optimizer& options, const Ema* ema,
             const DepthOf& depth_of, const torch::nn::Module* companion)
    : options_(options), ema_(ema) {
  for (const ParameterGroup& group : options.groups) {
    const double decay = group.weight_decay < 0 ? options.weight_decay : group.weight_decay;
    groups_.push_back({group.match, group.lr_scale, decay, {}});
  }
  groups_.push_back({"", 1, options.weight_decay, {}});
  for (const auto& item : model.named_parameters()) {
    add(item.key(), item.value(), depth_of ? depth_of(item.key()) : 0);
  }
  if (companion != nullptr) {
    for (const auto& item : companion->named_parameters()) {
      add("companion." + item.key(), item.value(), /*depth=*/0);
    }
  }
  for (size_t i = 0; i + 1 < groups_.size(); ++i) {
    check(!groups_[i].members.empty(),
          "recipe: the pattern '{}' of optimizer.group fits no parameter that is not in a group "
          "before it; names are such as '{}'",
          groups_[i].match, names_.empty() ? "" : names_.front());
  }
}

void AdamW::add(const std::string& name, const torch::Tensor& parameter, int64_t depth) {
  if (!parameter.requires_grad()) return;
  size_t group = 0;
  while (group + 1 < groups_.size() &&
         fnmatch(groups_[group].match.c_str(), name.c_str(), 0) != 0) {
    ++group;
  }
  groups_[group].members.push_back(parameters_.size());
  names_.push_back(name);
  parameters_.push_back(parameter);
  depths_.push_back(depth);
  check(parameter.is_contiguous() && parameter.scalar_type() == torch::kFloat && parameter.is_cpu(),
        "AdamW: '{}' must be a contiguous float32 tensor on the CPU", name);
  averages_.push_back(ema_ == nullptr ? torch::Tensor() : ema_->mean_of(parameter));
  exp_avg_.push_back(torch::zeros_like(parameter));
  exp_avg_sq_.push_back(torch::zeros_like(parameter));
  steps_.push_back(torch::zeros({}, torch::kFloat));
}

std::vector<kernels::AdamWParameter> AdamW::arrays(std::vector<torch::Tensor>& held) const {
  std::vector<kernels::AdamWParameter> arrays;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& gradient = parameters_[i].grad();
    const float* data = nullptr;
    if (gradient.defined()) {
      held.push_back(gradient.contiguous());
      data = held.back().const_data_ptr<float>();
    }
    arrays.push_back({.count = parameters_[i].numel(),
                      .weight = parameters_[i].data_ptr<float>(),
                      .gradient = data,
                      .mean = exp_avg_[i].data_ptr<float>(),
                      .square_mean = exp_avg_sq_[i].data_ptr<float>(),
                      .average = averages_[i].defined() ? averages_[i].data_ptr<float>() : nullptr,
                      .lr = 0,
                      .decay = 0,
                      .step = 0});
  }
  return arrays;
}

void AdamW::step(double lr, double gradient_factor) {
  std::vector<torch::Tensor> held;
  std::vector<kernels::AdamWParameter> parameters = arrays(held);
  int64_t done = 0;  // steps before this one
  for (const torch::Tensor& steps : steps_) {
    done = std::max(done, static_cast<int64_t>(*steps.const_data_ptr<float>()));
  }
  for (const Group& group : groups_) {
    for (const size_t i : group.members) {
      float& step = *steps_[i].data_ptr<float>();
      if (parameters[i].gradient != nullptr) step += 1;
      parameters[i].lr =
          lr * group.lr_scale * std::pow(options_.depth_decay, static_cast<double>(depths_[i]));
      parameters[i].decay = group.weight_decay;
      parameters[i].step = static_cast<int64_t>(step);
    }
  }
  ops::TorchRuntime runtime;
  kernels::adamw({.parameters = parameters,
                  .betas = {options_.betas[0], options_.betas[1]},
                  .epsilon = options_.epsilon,
                  .gradient_factor = gradient_factor,
                  .average_decay = ema_ == nullptr ? 0 : ema_->decay_at(done)},
                 runtime);
}

void AdamW::zero_grad() {
  for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

double AdamW::gradient_norm() const {
  std::vector<torch::Tensor> held;
  ops::TorchRuntime runtime;
  return std::sqrt(kernels::gradient_square_sum(arrays(held), runtime));
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
