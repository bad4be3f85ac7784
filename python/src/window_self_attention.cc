#include "qna/kernels/window_self_attention.h"

#include <algorithm>
#include <cmath>

#include "operators.h"
#include "qna/base/error.h"
#include "qna/base/text.h"
#include "runtime.h"

namespace qna::python {
namespace {

// The tensors as contiguous arrays, held while a kernel runs.
struct WindowArrays {
  WindowArrays(const Tensor& qkv_in, int64_t heads, const Integers& window,
               const OptionalTensor& bias_in, const OptionalTensor& mask_in, const char* caller) {
    check_map(qkv_in, 4, "qkv", caller);
    check_float32(qkv_in, "qkv", caller);
    check_float32(bias_in, "bias", caller);
    if (heads < 1 || qkv_in.size(3) < 3 * heads || qkv_in.size(3) % (3 * heads) != 0) {
      fail("{}: qkv must be [batch, height, width, 3 x {} heads x dim], got {}", caller, heads,
           in_brackets(sizes_of(qkv_in)));
    }
    const auto [rows, columns] = check_attention_window(qkv_in, heads, window, bias_in, caller);
    qkv = as_table(qkv_in);
    bias = as_table(bias_in);
    mask = check_mask(mask_in, sizes_of(qkv_in).first(3), caller);
    const int64_t dim = qkv_in.size(3) / (3 * heads);
    args = {.batch = qkv_in.size(0),
            .height = qkv_in.size(1),
            .width = qkv_in.size(2),
            .heads = heads,
            .head_dim = dim,
            .window_h = rows,
            .window_w = columns,
            .qkv = table_pointer(qkv),
            .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
            .bias = table_pointer(bias),
            .bias_h = bias.has_value() ? (bias->size(1) + 1) / 2 : 0,
            .bias_w = bias.has_value() ? (bias->size(2) + 1) / 2 : 0,
            .mask = mask_pointer(mask),
            .out = nullptr};
  }

  OptionalTensor qkv, bias, mask;
  kernels::WindowSelfAttentionArgs<float> args;
};

}  // namespace

std::array<int64_t, 2> check_attention_window(const Tensor& map, int64_t heads,
                                              const Integers& window, const OptionalTensor& bias,
                                              const char* caller) {
  if (map.size(1) < 1 || map.size(2) < 1) {
    fail("{}: the map must be at least 1 x 1, got {}", caller, in_brackets(sizes_of(map)));
  }
  if (window.size() != 2 || window[0] < 1 || window[1] < 1) {
    fail("{}: window must be at least 1 x 1, got {}", caller, in_brackets(window));
  }
  const int64_t rows = std::min(window[0], map.size(1));
  const int64_t columns = std::min(window[1], map.size(2));
  if (bias.has_value() && (bias->dim() != 3 || bias->size(0) != heads ||
                           bias->size(1) < 2 * rows - 1 || bias->size(2) < 2 * columns - 1)) {
    fail("{}: bias must be [{}, at least {}, at least {}], got {}", caller, heads, 2 * rows - 1,
         2 * columns - 1, in_brackets(sizes_of(*bias)));
  }
  return {rows, columns};
}

Tensor window_self_attention(Tensor qkv, int64_t heads, Integers window, OptionalTensor bias,
                             OptionalTensor mask) {
  WindowArrays arrays(qkv, heads, window, bias, mask, "qna::window_self_attention");
  const Tensor out = table({qkv.size(0), qkv.size(1), qkv.size(2), qkv.size(3) / 3});
  if (qkv.numel() == 0) return out;
  arrays.args.out = pointer<float>(out);
  TorchRuntime runtime;
  kernels::window_self_attention(arrays.args, runtime);
  return out;
}

Tensors2 window_self_attention_backward(Tensor grad_out, Tensor qkv, Tensor out, int64_t heads,
                                        Integers window, OptionalTensor bias, OptionalTensor mask) {
  const char* caller = "qna::window_self_attention_backward";
  WindowArrays arrays(qkv, heads, window, bias, mask, caller);
  check_sizes(grad_out, {qkv.size(0), qkv.size(1), qkv.size(2), qkv.size(3) / 3}, "grad_out",
              caller);
  check_sizes(out, {qkv.size(0), qkv.size(1), qkv.size(2), qkv.size(3) / 3}, "out", caller);
  check_float32(out, "out", caller);
  const OptionalTensor grad = as_table(grad_out), result = as_table(out);
  const Tensor grad_qkv = table(sizes_of(qkv));
  const Tensor grad_bias = bias.has_value() ? table(sizes_of(*bias)) : table({0});
  arrays.args.out = pointer<float>(*result);
  TorchRuntime runtime;
  kernels::window_self_attention_backward({.forward = arrays.args,
                                           .grad_out = table_pointer(grad),
                                           .grad_qkv = pointer<float>(grad_qkv),
                                           .grad_bias = wanted_pointer(grad_bias)},
                                          runtime);
  return {grad_qkv, grad_bias};
}

}  // namespace qna::python
