#include "qna/ops/window_self_attention_branch.h"

#include <ATen/ATen.h>

#include "qna/base/error.h"
#include "qna/kernels/window_self_attention_branch.h"
#include "qna/ops/autograd.h"
#include "qna/ops/fused.h"
#include "qna/ops/torch_runtime.h"
#include "qna/ops/window_self_attention.h"

namespace qna::ops {
namespace {

using torch::autograd::AutogradContext;

constexpr const char* kName = "window_self_attention_branch";

void check_arguments(const at::Tensor& x, const WindowSelfAttentionBranchParameters& p,
                     const OptionalTensor& mask, const OptionalTensor& drop_factor) {
  check(x.dim() == 4 && x.size(3) >= 1, "{}: x must be [batch, height, width, features], got {}",
        kName, in_brackets(x.sizes()));
  const int64_t features = x.size(3);
  check(p.heads >= 1 && features % p.heads == 0, "{}: heads must divide the features ({}), got {}",
        kName, features, p.heads);
  const auto check_sizes = [](const at::Tensor& tensor, at::IntArrayRef sizes, const char* name) {
    check(tensor.sizes() == sizes, "{}: {} must be {}, got {}", kName, name, in_brackets(sizes),
          in_brackets(tensor.sizes()));
  };
  check_sizes(p.norm_weight, {features}, "norm_weight");
  check_sizes(p.norm_bias, {features}, "norm_bias");
  check_sizes(p.qkv_weight, {3 * features, features}, "qkv_weight");
  check_sizes(p.proj_weight, {features, features}, "proj_weight");
  if (drop_factor.has_value()) check_sizes(*drop_factor, {x.size(0)}, "drop_factor");
  check_attention_windows(kName, x, p.heads, p.window, p.bias, mask);
}

// The tensors as contiguous arrays, held while the kernel runs.
struct Arrays {
  Arrays(const at::Tensor& x_in, const WindowSelfAttentionBranchParameters& p,
         const OptionalTensor& mask_in, const OptionalTensor& drop_factor_in)
      : x(x_in.contiguous()),
        norm_weight(p.norm_weight.contiguous()),
        norm_bias(p.norm_bias.contiguous()),
        qkv_weight(p.qkv_weight.contiguous()),
        proj_weight(p.proj_weight.contiguous()),
        bias(as_table(p.bias)),
        drop_factor(as_table(drop_factor_in)) {
    if (mask_in.has_value()) mask = mask_in->contiguous();
    inputs = {.batch = x.size(0),
              .height = x.size(1),
              .width = x.size(2),
              .features = x.size(3),
              .heads = p.heads,
              .window_h = std::min(p.window[0], x.size(1)),
              .window_w = std::min(p.window[1], x.size(2)),
              .epsilon = p.epsilon,
              .x = x.const_data_ptr<float>(),
              .norm_weight = norm_weight.const_data_ptr<float>(),
              .norm_bias = norm_bias.const_data_ptr<float>(),
              .qkv_weight = qkv_weight.const_data_ptr<float>(),
              .proj_weight = proj_weight.const_data_ptr<float>(),
              .bias = table_pointer(bias),
              .bias_h = bias.has_value() ? (bias->size(1) + 1) / 2 : 0,
              .bias_w = bias.has_value() ? (bias->size(2) + 1) / 2 : 0,
              .mask = mask_pointer(mask),
              .drop_factor = table_pointer(drop_factor)};
  }
  at::Tensor x, norm_weight, norm_bias, qkv_weight, proj_weight;
  OptionalTensor bias, mask, drop_factor;
  kernels::WindowSelfAttentionBranchInputs<float> inputs;
};

struct WindowSelfAttentionBranch : torch::autograd::Function<WindowSelfAttentionBranch> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& norm_weight, const at::Tensor& norm_bias,
                            const at::Tensor& qkv_weight, const at::Tensor& proj_weight,
                            const OptionalTensor& bias, const OptionalTensor& mask,
                            const OptionalTensor& drop_factor, int64_t heads,
                            std::array<int64_t, 2> window, double epsilon) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const Arrays arrays(
        x, {norm_weight, norm_bias, qkv_weight, proj_weight, bias, heads, window, epsilon}, mask,
        drop_factor);
    const at::Tensor qkv = at::empty({x.size(0), x.size(1), x.size(2), 3 * x.size(3)}, x.options());
    const at::Tensor mixed = at::empty(x.sizes(), x.options());
    at::Tensor y = at::empty(x.sizes(), x.options());
    TorchRuntime runtime;
    kernels::window_self_attention_branch(
        {arrays.inputs, qkv.data_ptr<float>(), mixed.data_ptr<float>(), y.data_ptr<float>()},
        runtime);
    context->save_for_backward({x, norm_weight, norm_bias, qkv_weight, proj_weight,
                                or_undefined(bias), or_undefined(mask), or_undefined(drop_factor),
                                qkv, mixed});
    context->saved_data["heads"] = heads;
    context->saved_data["window"] = std::vector<int64_t>{window[0], window[1]};
    context->saved_data["epsilon"] = epsilon;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const OptionalTensor mask = or_nothing(saved[6]);
    const OptionalTensor drop_factor = or_nothing(saved[7]);
    const std::vector<int64_t> sides = context->saved_data["window"].toIntVector();
    const auto parameters = [&](const variable_list& in) {
      return WindowSelfAttentionBranchParameters{in[1],
                                                 in[2],
                                                 in[3],
                                                 in[4],
                                                 or_nothing(in[5]),
                                                 context->saved_data["heads"].toInt(),
                                                 {sides[0], sides[1]},
                                                 context->saved_data["epsilon"].toDouble()};
    };
    variable_list gradients;
    if (at::GradMode::is_enabled()) {  // create_graph: gradients of gradients are wanted
      const variable_list inputs(saved.begin(), saved.begin() + 6);
      gradients = differentiable_gradients(inputs, grad_outputs[0], [&](const variable_list& in) {
        return window_self_attention_branch_composite(in[0], parameters(in), mask, drop_factor);
      });
    } else {
      const Arrays arrays(saved[0], parameters(saved), mask, drop_factor);
      const at::Tensor grad_y = grad_outputs[0].contiguous();
      for (int i = 0; i < 6; ++i) {
        gradients.push_back(saved[i].defined() ? at::empty(saved[i].sizes(), saved[0].options())
                                               : at::Tensor());
      }
      const auto data = [&](int i) {
        return gradients[i].defined() ? gradients[i].data_ptr<float>() : nullptr;
      };
      TorchRuntime runtime;
      kernels::window_self_attention_branch_backward(
          {arrays.inputs, saved[8].const_data_ptr<float>(), saved[9].const_data_ptr<float>(),
           grad_y.const_data_ptr<float>(), data(0), data(1), data(2), data(3), data(4), data(5)},
          runtime);
    }
    gradients.resize(11);  // none for mask, drop_factor, heads, window and epsilon
    return gradients;
  }
};

}  // namespace

at::Tensor window_self_attention_branch_composite(const at::Tensor& x,
                                                  const WindowSelfAttentionBranchParameters& p,
                                                  const OptionalTensor& mask,
                                                  const OptionalTensor& drop_factor) {
  const at::Tensor normed = at::layer_norm(x, {x.size(3)}, p.norm_weight, p.norm_bias, p.epsilon);
  const at::Tensor mixed = window_self_attention_composite(at::linear(normed, p.qkv_weight),
                                                           p.heads, p.window, p.bias, mask);
  const at::Tensor branch = at::linear(mixed, p.proj_weight);
  return x + (drop_factor.has_value() ? branch * drop_factor->view({-1, 1, 1, 1}) : branch);
}

at::Tensor window_self_attention_branch(const at::Tensor& x,
                                        const WindowSelfAttentionBranchParameters& p,
                                        const OptionalTensor& mask,
                                        const OptionalTensor& drop_factor) {
  check_arguments(x, p, mask, drop_factor);
  if (x.numel() == 0) return x.clone();
  const bool fused = is_fused(OperatorClass::kBranch, {x, p.norm_weight, p.norm_bias, p.qkv_weight,
                                                       p.proj_weight, p.bias, drop_factor}) &&
                     !(given(drop_factor) && drop_factor->requires_grad());
  if (!fused) return window_self_attention_branch_composite(x, p, mask, drop_factor);
  return WindowSelfAttentionBranch::apply(x, p.norm_weight, p.norm_bias, p.qkv_weight,
                                          p.proj_weight, p.bias, mask, drop_factor, p.heads,
                                          p.window, p.epsilon);
}

}  // namespace qna::ops
