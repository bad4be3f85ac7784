// What the operators' autograd functions share.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <initializer_list>

#include "qna/ops/geometry.h"

namespace qna::ops {

using torch::autograd::variable_list;

// Whether autograd records now and one of these wants a gradient.
bool wants_gradient(std::initializer_list<at::Tensor> tensors,
                    std::initializer_list<OptionalTensor> optional_tensors);

// An absent tensor is saved as an undefined one.
inline at::Tensor or_undefined(const OptionalTensor& tensor) {
  return tensor.value_or(at::Tensor());
}
inline OptionalTensor or_nothing(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

// Gradients of run(inputs) with respect to `inputs` (undefined ones get none), as a graph that can
// be differentiated again. run gets a stand-in for every input, so that inputs that are equal, or
// computed from each other, are told apart.
variable_list differentiable_gradients(
    const variable_list& inputs, const variable_list& grad_outs,
    const std::function<variable_list(const variable_list&)>& run);
variable_list differentiable_gradients(const variable_list& inputs, const at::Tensor& grad_out,
                                       const std::function<at::Tensor(const variable_list&)>& run);

// `gradient` in the dtype and shape of `input`, or undefined if the input was absent.
at::Tensor gradient_for(const at::Tensor& input, const at::Tensor& gradient);

}  // namespace qna::ops
