#include "qna/kernels/window_attention.h"

#include "operators.h"
#include "qna/base/error.h"
#include "runtime.h"

namespace qna::python {
namespace {

using kernels::WindowShape;

WindowShape check_window_attention(const Tensor& scores, const Tensor& values,
                                   const OptionalTensor& bias, const OptionalTensor& tap_weights,
                                   const Geometry& geometry, bool separate, const char* caller) {
  check_map(scores, 5, "scores", caller);
  check_map(values, 5, "values", caller);
  check(map_type(scores) == map_type(values), "{}: scores must have the dtype of values", caller);
  const int64_t batch = values.size(0), height = values.size(1), width = values.size(2),
                heads = values.size(3), queries = scores.size(3);
  check_sizes(scores, {batch, height, width, queries, heads}, "scores", caller);
  const WindowShape shape =
      make_shape(batch, height, width, queries, heads, values.size(4), geometry, separate, caller);
  check_sizes(bias, {shape.kernel_h, shape.kernel_w, queries, heads}, "bias", caller);
  check_sizes(tap_weights, {shape.kernel_h, shape.kernel_w, queries, heads}, "tap_weights", caller);
  return shape;
}

Integers out_sizes(const WindowShape& s) {
  Integers sizes = {s.batch, s.out_height(), s.out_width(), s.heads, s.head_dim};
  if (s.separate) sizes.insert(sizes.begin() + 3, s.queries);
  return sizes;
}

}  // namespace

Tensor window_attention(Tensor scores, Tensor values, OptionalTensor bias,
                        OptionalTensor tap_weights, OptionalTensor mask, Integers kernel_size,
                        Integers stride, Integers padding, Integers dilation, bool separate) {
  const char* caller = "qna::window_attention";
  const WindowShape shape = check_window_attention(
      scores, values, bias, tap_weights,
      make_geometry(kernel_size, stride, padding, dilation, caller), separate, caller);
  const OptionalTensor taking_part = check_mask(mask, sizes_of(values).first(3), caller);
  const Tensor s = as_contiguous(scores), v = as_contiguous(values);
  const OptionalTensor b = as_table(bias), w = as_table(tap_weights);
  const Tensor out = empty(out_sizes(shape), map_type(values));
  const kernels::ValueLayout layout{shape.features(), shape.head_dim, 1};
  TorchRuntime runtime;
  dispatch_type(map_type(values), [&](auto zero) {
    using T = decltype(zero);
    kernels::window_attention_forward<T>({.shape = shape,
                                          .scores = pointer<const T>(s),
                                          .score_stride = shape.scores(),
                                          .values = pointer<const T>(v),
                                          .value_layout = layout,
                                          .bias = table_pointer(b),
                                          .tap_weights = table_pointer(w),
                                          .mask = mask_pointer(taking_part),
                                          .out = pointer<T>(out),
                                          .out_layout = layout},
                                         runtime);
  });
  return out;
}

Tensors4 window_attention_backward(Tensor grad_out, Tensor scores, Tensor values,
                                   OptionalTensor bias, OptionalTensor tap_weights,
                                   OptionalTensor mask, Integers kernel_size, Integers stride,
                                   Integers padding, Integers dilation, bool separate) {
  const char* caller = "qna::window_attention_backward";
  const WindowShape shape = check_window_attention(
      scores, values, bias, tap_weights,
      make_geometry(kernel_size, stride, padding, dilation, caller), separate, caller);
  const ScalarType type = map_type(values);
  check(std::ranges::equal(sizes_of(grad_out), out_sizes(shape)),
        "{}: grad_out must be like the result", caller);
  const OptionalTensor taking_part = check_mask(mask, sizes_of(values).first(3), caller);
  const Tensor g = as_contiguous(as_type(grad_out, type)), s = as_contiguous(scores),
               v = as_contiguous(values);
  const OptionalTensor b = as_table(bias), w = as_table(tap_weights);
  const Tensor grad_scores = empty(sizes_of(scores), type),
               grad_values = empty(sizes_of(values), type);
  const Tensor grad_bias = table({shape.kernel_h, shape.kernel_w, shape.queries, shape.heads});
  const Tensor grad_tap_weights =
      table({shape.kernel_h, shape.kernel_w, shape.queries, shape.heads});
  const kernels::ValueLayout layout{shape.features(), shape.head_dim, 1};
  TorchRuntime runtime;
  dispatch_type(type, [&](auto zero) {
    using T = decltype(zero);
    kernels::window_attention_backward<T>({.shape = shape,
                                           .grad_out = pointer<const T>(g),
                                           .out_layout = layout,
                                           .scores = pointer<const T>(s),
                                           .score_stride = shape.scores(),
                                           .values = pointer<const T>(v),
                                           .value_layout = layout,
                                           .bias = table_pointer(b),
                                           .tap_weights = table_pointer(w),
                                           .mask = mask_pointer(taking_part),
                                           .grad_scores = pointer<T>(grad_scores),
                                           .grad_score_stride = shape.scores(),
                                           .grad_values = pointer<T>(grad_values),
                                           .grad_value_layout = layout,
                                           .grad_bias = pointer<float>(grad_bias),
                                           .grad_tap_weights = pointer<float>(grad_tap_weights)},
                                          runtime);
  });
  return {grad_scores, grad_values, grad_bias, grad_tap_weights};
}

}  // namespace qna::python
