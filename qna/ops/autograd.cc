#include "qna/ops/autograd.h"

#include <torch/csrc/autograd/autograd.h>

namespace qna::ops {

bool wants_gradient(std::initializer_list<at::Tensor> tensors,
                    std::initializer_list<OptionalTensor> optional_tensors) {
  if (!at::GradMode::is_enabled()) return false;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.requires_grad()) return true;
  }
  for (const OptionalTensor& tensor : optional_tensors) {
    if (tensor.has_value() && tensor->defined() && tensor->requires_grad()) return true;
  }
  return false;
}

variable_list differentiable_gradients(const variable_list& inputs, const at::Tensor& grad_out,
                                       const std::function<at::Tensor(const variable_list&)>& run) {
  return differentiable_gradients(inputs, variable_list{grad_out},
                                  [&](const variable_list& in) { return variable_list{run(in)}; });
}

variable_list differentiable_gradients(
    const variable_list& inputs, const variable_list& grad_outs,
    const std::function<variable_list(const variable_list&)>& run) {
  variable_list stand_ins;
  variable_list wanted;
  for (const at::Tensor& input : inputs) {
    const bool has = input.defined() && input.requires_grad();
    stand_ins.push_back(has ? input.view_as(input) : input);
    if (has) wanted.push_back(stand_ins.back());
  }
  const variable_list found =
      torch::autograd::grad(run(stand_ins), wanted, grad_outs, /*retain_graph=*/true,
                            /*create_graph=*/true, /*allow_unused=*/true);
  variable_list gradients;
  size_t next = 0;
  for (const at::Tensor& input : inputs) {
    const bool has = input.defined() && input.requires_grad();
    gradients.push_back(has ? found[next++] : at::Tensor());
  }
  return gradients;
}

at::Tensor gradient_for(const at::Tensor& input, const at::Tensor& gradient) {
  if (!input.defined()) return {};
  return gradient.to(input.scalar_type()).reshape(input.sizes());
}

}  // namespace qna::ops
