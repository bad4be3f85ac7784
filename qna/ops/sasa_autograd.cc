#include "qna/ops/sasa_autograd.h"

#include "qna/ops/autograd.h"
#include "qna/ops/sasa.h"

namespace qna::ops {
namespace {

using torch::autograd::AutogradContext;

struct Sasa : torch::autograd::Function<Sasa> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const OptionalTensor& bias,
                            const OptionalTensor& mask, const WindowGeometry& geometry) {
    context->save_for_backward({q, k, v, or_undefined(bias), or_undefined(mask)});
    context->saved_data["geometry"] = geometry_to_list(geometry);
    at::AutoDispatchBelowADInplaceOrView guard;
    return sasa(q, k, v, bias, mask, geometry);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &bias = saved[3];
    const OptionalTensor mask = or_nothing(saved[4]);
    const WindowGeometry geometry =
        geometry_from_list(context->saved_data["geometry"].toIntVector());
    variable_list gradients;
    if (at::GradMode::is_enabled()) {  // create_graph: gradients of gradients are wanted
      gradients =
          differentiable_gradients({q, k, v, bias}, grad_outputs[0], [&](const variable_list& in) {
            return sasa_composite(in[0], in[1], in[2], or_nothing(in[3]), mask, geometry);
          });
    } else {
      const auto [grad_q, grad_k, grad_v, grad_bias] =
          sasa_backward(grad_outputs[0], q, k, v, or_nothing(bias), mask,
                        sasa_shape(q, k, v, or_nothing(bias), mask, geometry));
      gradients = {grad_q, grad_k, grad_v, gradient_for(bias, grad_bias)};
    }
    gradients.resize(6);  // none for mask and geometry
    return gradients;
  }
};

}  // namespace

at::Tensor sasa_with_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const OptionalTensor& bias, const OptionalTensor& mask,
                              const WindowGeometry& geometry) {
  return Sasa::apply(q, k, v, bias, mask, geometry);
}

}  // namespace qna::ops
