#include "qna/ops/window_attention_autograd.h"

#include "qna/ops/autograd.h"
#include "qna/ops/composite.h"
#include "qna/ops/window_attention.h"

namespace qna::ops {
namespace {

using kernels::WindowShape;
using torch::autograd::AutogradContext;

struct WindowAttention : torch::autograd::Function<WindowAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores,
                            const at::Tensor& values, const OptionalTensor& bias,
                            const OptionalTensor& tap_weights, const OptionalTensor& mask,
                            const WindowGeometry& geometry, bool separate) {
    context->save_for_backward(
        {scores, values, or_undefined(bias), or_undefined(tap_weights), or_undefined(mask)});
    context->saved_data["geometry"] = geometry_to_list(geometry);
    context->saved_data["separate"] = separate;
    at::AutoDispatchBelowADInplaceOrView guard;
    return window_attention(scores, values, bias, tap_weights, mask, geometry, separate);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &scores = saved[0], &values = saved[1], &bias = saved[2],
                     &tap_weights = saved[3], &mask = saved[4];
    const WindowShape shape = window_attention_shape(
        scores, values, or_nothing(bias), or_nothing(tap_weights), or_nothing(mask),
        geometry_from_list(context->saved_data["geometry"].toIntVector()),
        context->saved_data["separate"].toBool());
    variable_list gradients;
    if (at::GradMode::is_enabled()) {  // create_graph: gradients of gradients are wanted
      gradients = differentiable_gradients(
          {scores, values, bias, tap_weights}, grad_outputs[0], [&](const variable_list& in) {
            return window_attention_composite(in[0], in[1], or_nothing(in[2]), or_nothing(in[3]),
                                              or_nothing(mask), shape);
          });
    } else {
      const auto [grad_scores, grad_values, grad_bias, grad_tap_weights] =
          window_attention_backward(grad_outputs[0], scores, values, or_nothing(bias),
                                    or_nothing(tap_weights), or_nothing(mask), shape);
      gradients = {grad_scores, grad_values, gradient_for(bias, grad_bias),
                   gradient_for(tap_weights, grad_tap_weights)};
    }
    gradients.resize(7);  // none for mask, geometry and separate
    return gradients;
  }
};

}  // namespace

at::Tensor window_attention_with_gradient(const at::Tensor& scores, const at::Tensor& values,
                                          const OptionalTensor& bias,
                                          const OptionalTensor& tap_weights,
                                          const OptionalTensor& mask,
                                          const WindowGeometry& geometry, bool separate) {
  return WindowAttention::apply(scores, values, bias, tap_weights, mask, geometry, separate);
}

}  // namespace qna::ops
