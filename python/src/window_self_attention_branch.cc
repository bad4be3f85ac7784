#include "qna/kernels/window_self_attention_branch.h"

#include "operators.h"
#include "qna/base/error.h"
#include "qna/base/text.h"
#include "runtime.h"

namespace qna::python {
namespace {

struct BranchParameters {
  const Tensor &norm_weight, &norm_bias, &qkv_weight, &proj_weight;
  const OptionalTensor &bias, &mask, &drop_factor;
  int64_t heads;
  const Integers& window;
  double epsilon;
};

// The tensors as contiguous arrays, held while the kernel runs.
struct BranchArrays {
  BranchArrays(const Tensor& x_in, const BranchParameters& p, const char* caller) {
    check_map(x_in, 4, "x", caller);
    check_float32(x_in, "x", caller);
    const int64_t features = x_in.size(3);
    if (p.heads < 1 || features < 1 || features % p.heads != 0) {
      fail("{}: heads must divide the features ({}), got {}", caller, features, p.heads);
    }
    const auto array = [&](const OptionalTensor& tensor, std::initializer_list<int64_t> sizes,
                           const char* name) {
      check_sizes(tensor, sizes, name, caller);
      check_float32(tensor, name, caller);
      return as_table(tensor);
    };
    const auto [rows, columns] = check_attention_window(x_in, p.heads, p.window, p.bias, caller);
    check_float32(p.bias, "bias", caller);
    x = as_table(x_in);
    norm_weight = array(p.norm_weight, {features}, "norm_weight");
    norm_bias = array(p.norm_bias, {features}, "norm_bias");
    qkv_weight = array(p.qkv_weight, {3 * features, features}, "qkv_weight");
    proj_weight = array(p.proj_weight, {features, features}, "proj_weight");
    drop_factor = array(p.drop_factor, {x_in.size(0)}, "drop_factor");
    bias = as_table(p.bias);
    mask = check_mask(p.mask, sizes_of(x_in).first(3), caller);
    inputs = {.batch = x_in.size(0),
              .height = x_in.size(1),
              .width = x_in.size(2),
              .features = features,
              .heads = p.heads,
              .window_h = rows,
              .window_w = columns,
              .epsilon = p.epsilon,
              .x = table_pointer(x),
              .norm_weight = table_pointer(norm_weight),
              .norm_bias = table_pointer(norm_bias),
              .qkv_weight = table_pointer(qkv_weight),
              .proj_weight = table_pointer(proj_weight),
              .bias = table_pointer(bias),
              .bias_h = bias.has_value() ? (bias->size(1) + 1) / 2 : 0,
              .bias_w = bias.has_value() ? (bias->size(2) + 1) / 2 : 0,
              .mask = mask_pointer(mask),
              .drop_factor = table_pointer(drop_factor)};
  }
  int64_t map_floats() const { return inputs.rows() * inputs.features; }

  OptionalTensor x, norm_weight, norm_bias, qkv_weight, proj_weight, bias, mask, drop_factor;
  kernels::WindowSelfAttentionBranchInputs<float> inputs;
};

Tensors2 run(const Tensor& x, const BranchParameters& p, const char* caller) {
  const BranchArrays arrays(x, p, caller);
  const Tensor saved = table({4, x.size(0), x.size(1), x.size(2), x.size(3)});
  const Tensor y = table(sizes_of(x));
  TorchRuntime runtime;
  kernels::window_self_attention_branch(
      {arrays.inputs, pointer<float>(saved), pointer<float>(saved) + 3 * arrays.map_floats(),
       pointer<float>(y)},
      runtime);
  return {y, saved};
}

}  // namespace

Tensor window_self_attention_branch(Tensor x, Tensor norm_weight, Tensor norm_bias,
                                    Tensor qkv_weight, Tensor proj_weight, OptionalTensor bias,
                                    OptionalTensor mask, OptionalTensor drop_factor, int64_t heads,
                                    Integers window, double epsilon) {
  return std::get<0>(run(x,
                         {norm_weight, norm_bias, qkv_weight, proj_weight, bias, mask, drop_factor,
                          heads, window, epsilon},
                         "qna::window_self_attention_branch"));
}

Tensors2 window_self_attention_branch_saving(Tensor x, Tensor norm_weight, Tensor norm_bias,
                                             Tensor qkv_weight, Tensor proj_weight,
                                             OptionalTensor bias, OptionalTensor mask,
                                             OptionalTensor drop_factor, int64_t heads,
                                             Integers window, double epsilon) {
  return run(x,
             {norm_weight, norm_bias, qkv_weight, proj_weight, bias, mask, drop_factor, heads,
              window, epsilon},
             "qna::window_self_attention_branch_saving");
}

Tensors6 window_self_attention_branch_backward(Tensor grad_y, Tensor saved, Tensor x,
                                               Tensor norm_weight, Tensor norm_bias,
                                               Tensor qkv_weight, Tensor proj_weight,
                                               OptionalTensor bias, OptionalTensor mask,
                                               OptionalTensor drop_factor, int64_t heads,
                                               Integers window, double epsilon) {
  const char* caller = "qna::window_self_attention_branch_backward";
  const BranchArrays arrays(x,
                            {norm_weight, norm_bias, qkv_weight, proj_weight, bias, mask,
                             drop_factor, heads, window, epsilon},
                            caller);
  check_sizes(grad_y, sizes_of(x), "grad_y", caller);
  check_sizes(saved, {4, x.size(0), x.size(1), x.size(2), x.size(3)}, "saved", caller);
  check_float32(saved, "saved", caller);
  const OptionalTensor grad = as_table(grad_y), kept = as_table(saved);
  const auto like = [](const Tensor& tensor) { return table(sizes_of(tensor)); };
  Tensors6 gradients = {like(x),           like(norm_weight),
                        like(norm_bias),   like(qkv_weight),
                        like(proj_weight), bias.has_value() ? like(*bias) : table({0})};
  TorchRuntime runtime;
  std::apply(
      [&](const auto&... gradient) {
        kernels::window_self_attention_branch_backward(
            {arrays.inputs, table_pointer(kept), table_pointer(kept) + 3 * arrays.map_floats(),
             table_pointer(grad), pointer<float>(gradient)...},
            runtime);
      },
      gradients);
  return gradients;
}

}  // namespace qna::python
