#include "qna/ops/mlp_branch.h"

#include <ATen/ATen.h>

#include "qna/base/error.h"
#include "qna/kernels/mlp_branch.h"
#include "qna/ops/activation.h"
#include "qna/ops/autograd.h"
#include "qna/ops/fused.h"
#include "qna/ops/torch_runtime.h"

namespace qna::ops {
namespace {

using torch::autograd::AutogradContext;

constexpr const char* kName = "mlp_branch";

void check_arguments(const at::Tensor& x, const MlpBranchParameters& p,
                     const OptionalTensor& drop_factor) {
  check(x.dim() >= 2 && x.size(-1) >= 1, "{}: x must be [batch, ..., features], got {}", kName,
        in_brackets(x.sizes()));
  check(p.weight1.dim() == 2, "{}: weight1 must be [hidden, features], got {}", kName,
        in_brackets(p.weight1.sizes()));
  const int64_t features = x.size(-1);
  const int64_t hidden = p.weight1.size(0);
  const auto check_sizes = [](const at::Tensor& tensor, at::IntArrayRef sizes, const char* name) {
    check(tensor.sizes() == sizes, "{}: {} must be {}, got {}", kName, name, in_brackets(sizes),
          in_brackets(tensor.sizes()));
  };
  check_sizes(p.norm_weight, {features}, "norm_weight");
  check_sizes(p.norm_bias, {features}, "norm_bias");
  check_sizes(p.weight1, {hidden, features}, "weight1");
  check_sizes(p.bias1, {hidden}, "bias1");
  check_sizes(p.weight2, {features, hidden}, "weight2");
  check_sizes(p.bias2, {features}, "bias2");
  if (drop_factor.has_value()) check_sizes(*drop_factor, {x.size(0)}, "drop_factor");
}

// The tensors as contiguous arrays, held while the kernel runs.
struct Arrays {
  Arrays(const at::Tensor& x_in, const MlpBranchParameters& p, const OptionalTensor& drop_factor_in)
      : x(x_in.contiguous()),
        norm_weight(p.norm_weight.contiguous()),
        norm_bias(p.norm_bias.contiguous()),
        weight1(p.weight1.contiguous()),
        bias1(p.bias1.contiguous()),
        weight2(p.weight2.contiguous()),
        bias2(p.bias2.contiguous()),
        drop_factor(drop_factor_in.has_value() ? drop_factor_in->contiguous() : at::Tensor()) {
    const int64_t rows = x.numel() / x.size(-1);
    inputs = {.rows = rows,
              .features = x.size(-1),
              .hidden = weight1.size(0),
              .activation = p.activation,
              .epsilon = p.epsilon,
              .x = x.const_data_ptr<float>(),
              .norm_weight = norm_weight.const_data_ptr<float>(),
              .norm_bias = norm_bias.const_data_ptr<float>(),
              .weight1 = weight1.const_data_ptr<float>(),
              .bias1 = bias1.const_data_ptr<float>(),
              .weight2 = weight2.const_data_ptr<float>(),
              .bias2 = bias2.const_data_ptr<float>(),
              .drop_factor = drop_factor.defined() ? drop_factor.const_data_ptr<float>() : nullptr,
              .drop_rows = x.size(0) == 0 ? 1 : rows / x.size(0)};
  }
  at::Tensor x, norm_weight, norm_bias, weight1, bias1, weight2, bias2, drop_factor;
  kernels::MlpBranchInputs<float> inputs;
};

struct MlpBranch : torch::autograd::Function<MlpBranch> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& norm_weight, const at::Tensor& norm_bias,
                            const at::Tensor& weight1, const at::Tensor& bias1,
                            const at::Tensor& weight2, const at::Tensor& bias2,
                            const OptionalTensor& drop_factor, int64_t activation, double epsilon) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const MlpBranchParameters p{norm_weight,
                                norm_bias,
                                weight1,
                                bias1,
                                weight2,
                                bias2,
                                static_cast<kernels::Activation>(activation),
                                epsilon};
    const Arrays arrays(x, p, drop_factor);
    const at::Tensor h = at::empty({arrays.inputs.rows, arrays.inputs.hidden}, x.options());
    at::Tensor y = at::empty(x.sizes(), x.options());
    TorchRuntime runtime;
    kernels::mlp_branch({arrays.inputs, h.data_ptr<float>(), y.data_ptr<float>()}, runtime);
    context->save_for_backward(
        {x, norm_weight, norm_bias, weight1, bias1, weight2, bias2, or_undefined(drop_factor), h});
    context->saved_data["activation"] = activation;
    context->saved_data["epsilon"] = epsilon;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const OptionalTensor drop_factor = or_nothing(saved[7]);
    const auto parameters = [&](const variable_list& in) {
      const auto activation = context->saved_data["activation"].toInt();
      return MlpBranchParameters{in[1],
                                 in[2],
                                 in[3],
                                 in[4],
                                 in[5],
                                 in[6],
                                 static_cast<kernels::Activation>(activation),
                                 context->saved_data["epsilon"].toDouble()};
    };
    variable_list gradients;
    if (at::GradMode::is_enabled()) {  // create_graph: gradients of gradients are wanted
      const variable_list inputs(saved.begin(), saved.begin() + 7);
      gradients = differentiable_gradients(inputs, grad_outputs[0], [&](const variable_list& in) {
        return mlp_branch_composite(in[0], parameters(in), drop_factor);
      });
    } else {
      const Arrays arrays(saved[0], parameters(saved), drop_factor);
      const at::Tensor grad_y = grad_outputs[0].contiguous();
      for (int i = 0; i < 7; ++i) {
        gradients.push_back(at::empty(saved[i].sizes(), saved[0].options()));
      }
      const auto data = [&](int i) { return gradients[i].data_ptr<float>(); };
      TorchRuntime runtime;
      kernels::mlp_branch_backward(
          {arrays.inputs, saved[8].const_data_ptr<float>(), grad_y.const_data_ptr<float>(), data(0),
           data(1), data(2), data(3), data(4), data(5), data(6)},
          runtime);
    }
    gradients.resize(10);  // none for drop_factor, activation and epsilon
    return gradients;
  }
};

}  // namespace

at::Tensor mlp_branch_composite(const at::Tensor& x, const MlpBranchParameters& p,
                                const OptionalTensor& drop_factor) {
  const at::Tensor normed = at::layer_norm(x, {x.size(-1)}, p.norm_weight, p.norm_bias, p.epsilon);
  const at::Tensor hidden = activate(at::linear(normed, p.weight1, p.bias1), p.activation);
  const at::Tensor branch = at::linear(hidden, p.weight2, p.bias2);
  if (!drop_factor.has_value()) return x + branch;
  std::vector<int64_t> sizes(x.dim(), 1);
  sizes[0] = x.size(0);
  return x + branch * drop_factor->view(sizes);
}

at::Tensor mlp_branch(const at::Tensor& x, const MlpBranchParameters& p,
                      const OptionalTensor& drop_factor) {
  check_arguments(x, p, drop_factor);
  const bool fused = is_fused(OperatorClass::kBranch, {x, p.norm_weight, p.norm_bias, p.weight1,
                                                       p.bias1, p.weight2, p.bias2, drop_factor}) &&
                     !(given(drop_factor) && drop_factor->requires_grad());
  if (!fused) return mlp_branch_composite(x, p, drop_factor);
  return MlpBranch::apply(x, p.norm_weight, p.norm_bias, p.weight1, p.bias1, p.weight2, p.bias2,
                          drop_factor, static_cast<int64_t>(p.activation), p.epsilon);
}

}  // namespace qna::ops
