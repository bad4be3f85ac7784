#include "qna/ops/window_attention.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "qna/base/error.h"
#include "qna/kernels/window_attention.h"
#include "qna/ops/autograd.h"
#include "qna/ops/composite.h"
#include "qna/ops/fused.h"
#include "qna/ops/registration.h"
#include "qna/ops/torch_runtime.h"
#include "qna/ops/window_attention_autograd.h"

namespace qna::ops {
namespace {

using kernels::WindowShape;

constexpr const char* kName = "qna::window_attention";

std::vector<int64_t> out_sizes(const WindowShape& s) {
  std::vector<int64_t> sizes = {s.batch, s.out_height(), s.out_width(), s.heads, s.head_dim};
  if (s.separate) sizes.insert(sizes.begin() + 3, s.queries);
  return sizes;
}

at::Tensor forward_cpu(const at::Tensor& scores, const at::Tensor& values,
                       const OptionalTensor& bias, const OptionalTensor& tap_weights,
                       const OptionalTensor& mask, const WindowGeometry& geometry, bool separate) {
  const WindowShape shape =
      window_attention_shape(scores, values, bias, tap_weights, mask, geometry, separate);
  const OptionalTensor taking_part = check_mask(mask, shape, kName);
  if (!is_fused(OperatorClass::kMap, {values})) {
    return window_attention_composite(scores, values, bias, tap_weights, taking_part, shape);
  }
  const at::Tensor s = scores.contiguous();
  const at::Tensor v = values.contiguous();
  const OptionalTensor b = as_table(bias);
  const OptionalTensor w = as_table(tap_weights);
  const at::Tensor out = at::empty(out_sizes(shape), values.options());
  const kernels::ValueLayout layout{shape.features(), shape.head_dim, 1};
  TorchRuntime runtime;
  dispatch_type(values.scalar_type(), [&](auto type) {
    using T = decltype(type);
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

at::Tensor forward_meta(const at::Tensor& scores, const at::Tensor& values,
                        const OptionalTensor& bias, const OptionalTensor& tap_weights,
                        const OptionalTensor& mask, const WindowGeometry& geometry, bool separate) {
  const WindowShape shape =
      window_attention_shape(scores, values, bias, tap_weights, mask, geometry, separate);
  check_mask_type(mask, shape, kName);
  return at::empty(out_sizes(shape), values.options());
}

at::Tensor forward_any(const at::Tensor& scores, const at::Tensor& values,
                       const OptionalTensor& bias, const OptionalTensor& tap_weights,
                       const OptionalTensor& mask, const WindowGeometry& geometry, bool separate) {
  const WindowShape shape =
      window_attention_shape(scores, values, bias, tap_weights, mask, geometry, separate);
  return window_attention_composite(scores, values, bias, tap_weights,
                                    check_mask(mask, shape, kName), shape);
}

at::Tensor forward_autograd(const at::Tensor& scores, const at::Tensor& values,
                            const OptionalTensor& bias, const OptionalTensor& tap_weights,
                            const OptionalTensor& mask, const WindowGeometry& geometry,
                            bool separate) {
  // The composite form is differentiable as it is.
  if (!is_fused(OperatorClass::kMap, {values})) {
    return forward_any(scores, values, bias, tap_weights, mask, geometry, separate);
  }
  const WindowShape shape =
      window_attention_shape(scores, values, bias, tap_weights, mask, geometry, separate);
  if (!wants_gradient({scores, values}, {bias, tap_weights})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return window_attention(scores, values, bias, tap_weights, mask, geometry, separate);
  }
  return window_attention_with_gradient(scores, values, bias, tap_weights,
                                        check_mask(mask, shape, kName), geometry, separate);
}

// Maps go to the lower precision; the small tables stay as they are.
template <c10::DispatchKey kKey, c10::DeviceType kDevice>
at::Tensor forward_autocast(const at::Tensor& scores, const at::Tensor& values,
                            const OptionalTensor& bias, const OptionalTensor& tap_weights,
                            const OptionalTensor& mask, const WindowGeometry& geometry,
                            bool separate) {
  c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  const at::ScalarType type = at::autocast::get_autocast_dtype(kDevice);
  return window_attention(at::autocast::cached_cast(type, scores, kDevice),
                          at::autocast::cached_cast(type, values, kDevice), bias, tap_weights, mask,
                          geometry, separate);
}

using Implementation = decltype(&forward_cpu);

// The operator's flat arguments, as the dispatcher hands them over, with the geometry as a struct.
template <Implementation kImplementation>
at::Tensor unpacked(const at::Tensor& scores, const at::Tensor& values, const OptionalTensor& bias,
                    const OptionalTensor& tap_weights, const OptionalTensor& mask,
                    at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding,
                    at::IntArrayRef dilation, bool separate) {
  return kImplementation(scores, values, bias, tap_weights, mask,
                         make_geometry(kernel_size, stride, padding, dilation, kName), separate);
}

}  // namespace

WindowShape window_attention_shape(const at::Tensor& scores, const at::Tensor& values,
                                   const OptionalTensor& bias, const OptionalTensor& tap_weights,
                                   const OptionalTensor& mask, const WindowGeometry& geometry,
                                   bool separate) {
  check_rank(scores, 5, "[batch, height, width, queries, heads]", "scores", kName);
  check_rank(values, 5, "[batch, height, width, heads, dim]", "values", kName);
  check_floating(values, "values", kName);
  check(scores.scalar_type() == values.scalar_type(),
        "{}: scores must have the dtype of values ({}), got {}", kName,
        c10::toString(values.scalar_type()), c10::toString(scores.scalar_type()));
  check_same_device(values, scores, "values", "scores", kName);
  check_same_device(values, bias, "values", "bias", kName);
  check_same_device(values, tap_weights, "values", "tap_weights", kName);
  check_same_device(values, mask, "values", "mask", kName);
  const int64_t heads = values.size(3);
  check_sizes(scores, {values.size(0), values.size(1), values.size(2), scores.size(3), heads},
              "[batch, height, width, queries, heads] of values", "scores", kName);
  const WindowShape shape =
      make_shape(values.size(0), values.size(1), values.size(2), scores.size(3), heads,
                 values.size(4), geometry, separate, kName);
  const int64_t table[] = {shape.kernel_h, shape.kernel_w, shape.queries, heads};
  check_sizes(bias, table, "[kernel height, kernel width, queries, heads]", "bias", kName);
  check_sizes(tap_weights, table, "[kernel height, kernel width, queries, heads]", "tap_weights",
              kName);
  if (bias.has_value() && bias->defined()) check_floating(*bias, "bias", kName);
  if (tap_weights.has_value() && tap_weights->defined()) {
    check_floating(*tap_weights, "tap_weights", kName);
  }
  return shape;
}

at::Tensor window_attention(const at::Tensor& scores, const at::Tensor& values,
                            const OptionalTensor& bias, const OptionalTensor& tap_weights,
                            const OptionalTensor& mask, const WindowGeometry& geometry,
                            bool separate) {
  register_operators();
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(kName, "")
                             .typed<decltype(unpacked<forward_cpu>)>();
  return op.call(scores, values, bias, tap_weights, mask, geometry.kernel_size, geometry.stride,
                 geometry.padding, geometry.dilation, separate);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> window_attention_backward(
    const at::Tensor& grad_out, const at::Tensor& scores, const at::Tensor& values,
    const OptionalTensor& bias, const OptionalTensor& tap_weights, const OptionalTensor& mask,
    const WindowShape& shape) {
  const at::Tensor g = grad_out.to(values.scalar_type()).contiguous();
  const at::Tensor s = scores.contiguous();
  const at::Tensor v = values.contiguous();
  const OptionalTensor b = as_table(bias);
  const OptionalTensor w = as_table(tap_weights);
  const at::Tensor grad_scores = at::empty(s.sizes(), s.options());
  const at::Tensor grad_values = at::empty(v.sizes(), v.options());
  const auto table = v.options().dtype(at::kFloat);
  const std::vector<int64_t> table_sizes = {shape.kernel_h, shape.kernel_w, shape.queries,
                                            shape.heads};
  const at::Tensor grad_bias = at::empty(table_sizes, table);
  const at::Tensor grad_tap_weights = at::empty(table_sizes, table);
  const kernels::ValueLayout layout{shape.features(), shape.head_dim, 1};
  TorchRuntime runtime;
  dispatch_type(values.scalar_type(), [&](auto type) {
    using T = decltype(type);
    kernels::window_attention_backward<T>({.shape = shape,
                                           .grad_out = pointer<const T>(g),
                                           .out_layout = layout,
                                           .scores = pointer<const T>(s),
                                           .score_stride = shape.scores(),
                                           .values = pointer<const T>(v),
                                           .value_layout = layout,
                                           .bias = table_pointer(b),
                                           .tap_weights = table_pointer(w),
                                           .mask = mask_pointer(mask),
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

void register_window_attention(Libraries& libraries) {
  libraries.definitions.def(
      "window_attention(Tensor scores, Tensor values, Tensor? bias, Tensor? tap_weights, "
      "Tensor? mask, int[2] kernel_size, int[2] stride, int[4] padding, int[2] dilation, "
      "bool separate) -> Tensor");
  libraries.definitions.impl(
      "window_attention",
      torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, unpacked<forward_any>));
  libraries.cpu.impl("window_attention", unpacked<forward_cpu>);
  libraries.meta.impl("window_attention", unpacked<forward_meta>);
  libraries.autograd_cpu.impl("window_attention", unpacked<forward_autograd>);
  libraries.autocast_cpu.impl(
      "window_attention",
      unpacked<forward_autocast<c10::DispatchKey::AutocastCPU, c10::DeviceType::CPU>>);
  libraries.autocast_cuda.impl(
      "window_attention",
      unpacked<forward_autocast<c10::DispatchKey::AutocastCUDA, c10::DeviceType::CUDA>>);
}

}  // namespace qna::ops
