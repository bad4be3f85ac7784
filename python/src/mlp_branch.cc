#include "qna/kernels/mlp_branch.h"

#include <string_view>

#include "operators.h"
#include "qna/base/error.h"
#include "qna/base/text.h"
#include "runtime.h"

namespace qna::python {
namespace {

kernels::Activation activation_named(std::string_view name, const char* caller) {
  using kernels::Activation;
  if (name == "none") return Activation::kNone;
  if (name == "gelu_tanh") return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGelu;
  if (name == "relu") return Activation::kRelu;
  if (name == "relu6") return Activation::kRelu6;
  if (name == "silu") return Activation::kSilu;
  fail("{}: activation must be none, gelu_tanh, gelu, relu, relu6 or silu, got {}", caller, name);
}

struct MlpParameters {
  const Tensor &norm_weight, &norm_bias, &weight1, &bias1, &weight2, &bias2;
};

// The tensors as contiguous arrays, held while the kernel runs.
struct MlpArrays {
  MlpArrays(const Tensor& x_in, const MlpParameters& p, const OptionalTensor& drop_factor_in,
            std::string_view activation, double epsilon, const char* caller)
      : x(as_contiguous(x_in)) {
    if (x.dim() < 2 || x.size(x.dim() - 1) < 1) {
      fail("{}: x must be [batch, ..., features], got {}", caller, in_brackets(sizes_of(x)));
    }
    if (p.weight1.dim() != 2 || p.weight1.size(0) < 1) {
      fail("{}: weight1 must be [hidden, features], got {}", caller,
           in_brackets(sizes_of(p.weight1)));
    }
    check_float32(x, "x", caller);
    const int64_t features = x.size(x.dim() - 1), hidden = p.weight1.size(0),
                  rows = x.numel() / features;
    const auto array = [&](const OptionalTensor& tensor, std::initializer_list<int64_t> sizes,
                           const char* name) {
      check_sizes(tensor, sizes, name, caller);
      check_float32(tensor, name, caller);
      return as_table(tensor);
    };
    norm_weight = array(p.norm_weight, {features}, "norm_weight");
    norm_bias = array(p.norm_bias, {features}, "norm_bias");
    weight1 = array(p.weight1, {hidden, features}, "weight1");
    bias1 = array(p.bias1, {hidden}, "bias1");
    weight2 = array(p.weight2, {features, hidden}, "weight2");
    bias2 = array(p.bias2, {features}, "bias2");
    drop_factor = array(drop_factor_in, {x.size(0)}, "drop_factor");
    inputs = {.rows = rows,
              .features = features,
              .hidden = hidden,
              .activation = activation_named(activation, caller),
              .epsilon = epsilon,
              .x = pointer<const float>(x),
              .norm_weight = table_pointer(norm_weight),
              .norm_bias = table_pointer(norm_bias),
              .weight1 = table_pointer(weight1),
              .bias1 = table_pointer(bias1),
              .weight2 = table_pointer(weight2),
              .bias2 = table_pointer(bias2),
              .drop_factor = table_pointer(drop_factor),
              .drop_rows = x.size(0) == 0 ? 1 : rows / x.size(0)};
  }

  Tensor x;
  OptionalTensor norm_weight, norm_bias, weight1, bias1, weight2, bias2, drop_factor;
  kernels::MlpBranchInputs<float> inputs;
};

Tensors2 run(const Tensor& x, const MlpParameters& p, const OptionalTensor& drop_factor,
             std::string_view activation, double epsilon, const char* caller) {
  const MlpArrays arrays(x, p, drop_factor, activation, epsilon, caller);
  const Tensor h = table({arrays.inputs.rows, arrays.inputs.hidden});
  const Tensor y = table(sizes_of(x));
  TorchRuntime runtime;
  kernels::mlp_branch({arrays.inputs, pointer<float>(h), pointer<float>(y)}, runtime);
  return {y, h};
}

}  // namespace

Tensor mlp_branch(Tensor x, Tensor norm_weight, Tensor norm_bias, Tensor weight1, Tensor bias1,
                  Tensor weight2, Tensor bias2, OptionalTensor drop_factor, std::string activation,
                  double epsilon) {
  return std::get<0>(run(x, {norm_weight, norm_bias, weight1, bias1, weight2, bias2}, drop_factor,
                         activation, epsilon, "qna::mlp_branch"));
}

Tensors2 mlp_branch_saving(Tensor x, Tensor norm_weight, Tensor norm_bias, Tensor weight1,
                           Tensor bias1, Tensor weight2, Tensor bias2, OptionalTensor drop_factor,
                           std::string activation, double epsilon) {
  return run(x, {norm_weight, norm_bias, weight1, bias1, weight2, bias2}, drop_factor, activation,
             epsilon, "qna::mlp_branch_saving");
}

Tensors7 mlp_branch_backward(Tensor grad_y, Tensor h, Tensor x, Tensor norm_weight,
                             Tensor norm_bias, Tensor weight1, Tensor bias1, Tensor weight2,
                             Tensor bias2, OptionalTensor drop_factor, std::string activation,
                             double epsilon) {
  const char* caller = "qna::mlp_branch_backward";
  const MlpArrays arrays(x, {norm_weight, norm_bias, weight1, bias1, weight2, bias2}, drop_factor,
                         activation, epsilon, caller);
  const auto& in = arrays.inputs;
  check_sizes(grad_y, sizes_of(x), "grad_y", caller);
  check_sizes(h, {in.rows, in.hidden}, "h", caller);
  check_float32(h, "h", caller);
  const OptionalTensor grad = as_table(grad_y), hidden = as_table(h);
  const auto like = [](const Tensor& tensor) { return table(sizes_of(tensor)); };
  Tensors7 gradients = {like(x),     like(norm_weight), like(norm_bias), like(weight1),
                        like(bias1), like(weight2),     like(bias2)};
  TorchRuntime runtime;
  std::apply(
      [&](const auto&... gradient) {
        kernels::mlp_branch_backward(
            {in, table_pointer(hidden), table_pointer(grad), pointer<float>(gradient)...}, runtime);
      },
      gradients);
  return gradients;
}

}  // namespace qna::python
