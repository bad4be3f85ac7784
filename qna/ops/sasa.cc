#include "qna/ops/sasa.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "qna/base/error.h"
#include "qna/kernels/sasa.h"
#include "qna/ops/autograd.h"
#include "qna/ops/fused.h"
#include "qna/ops/registration.h"
#include "qna/ops/sasa_autograd.h"
#include "qna/ops/torch_runtime.h"

namespace qna::ops {
namespace {

using kernels::WindowShape;

constexpr const char* kName = "qna::sasa";

// Whether heads, not dimensions, are the fast index of a map [B, H, W, heads, dim].
bool heads_fast(const at::Tensor& map) { return map.stride(3) < map.stride(4); }

// An uninitialised map like this one, with the same order of channels and nothing in between.
at::Tensor empty_map(const at::Tensor& like) {
  if (!heads_fast(like)) return at::empty(like.sizes(), like.options());
  std::vector<int64_t> sizes = like.sizes().vec();
  std::swap(sizes[3], sizes[4]);
  return at::empty(sizes, like.options()).transpose(3, 4);
}

// From one pixel to the next, if all are at that distance and the channels of each lie within it; 0
// if not.
int64_t pixel_stride(const at::Tensor& map) {
  const int64_t reach = (map.size(3) - 1) * map.stride(3) + (map.size(4) - 1) * map.stride(4) + 1;
  int64_t stride = 0;  // 0 while there is one pixel only
  int64_t pixels = 1;
  for (const int axis : {2, 1, 0}) {
    if (map.size(axis) > 1 && stride == 0) {
      stride = map.stride(axis);
      if (stride < reach) return 0;
    }
    if (map.size(axis) > 1 && map.stride(axis) != pixels * stride) return 0;
    pixels *= map.size(axis);
  }
  return std::max(stride, reach);
}

// A map as the kernels take it; copied only if it lies otherwise.
at::Tensor as_pixels(const at::Tensor& map) {
  if (map.numel() == 0 || pixel_stride(map) != 0) return map;
  return heads_fast(map) ? map.transpose(3, 4).contiguous().transpose(3, 4) : map.contiguous();
}

template <typename T>
kernels::PixelMap<T> pixel_map(const at::Tensor& map) {
  return {pointer<T>(map), {pixel_stride(map), map.stride(3), map.stride(4)}};
}

// The tensors as the kernels take them, held while one runs.
struct Arrays {
  Arrays(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
         const OptionalTensor& bias_in)
      : q(as_pixels(q_in)), k(as_pixels(k_in)), v(as_pixels(v_in)), bias(as_table(bias_in)) {}

  template <typename T>
  kernels::SasaArgs<T> args(const WindowShape& shape, const OptionalTensor& mask,
                            const kernels::PixelMap<T>& out) const {
    return {.shape = shape,
            .q = pixel_map<const T>(q),
            .k = pixel_map<const T>(k),
            .v = pixel_map<const T>(v),
            .bias = table_pointer(bias),
            .mask = mask_pointer(mask),
            .out = out};
  }

  at::Tensor q, k, v;
  OptionalTensor bias;
};

at::Tensor forward_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const OptionalTensor& bias, const OptionalTensor& mask,
                       const WindowGeometry& geometry) {
  const WindowShape shape = sasa_shape(q, k, v, bias, mask, geometry);
  const OptionalTensor taking_part = check_mask(mask, shape, kName);
  if (!is_fused(OperatorClass::kMap, {q}))
    return sasa_composite(q, k, v, bias, taking_part, geometry);
  const Arrays arrays(q, k, v, bias);
  const at::Tensor out = empty_map(q);
  TorchRuntime runtime;
  dispatch_type(q.scalar_type(), [&](auto type) {
    using T = decltype(type);
    kernels::sasa_forward<T>(arrays.args<T>(shape, taking_part, pixel_map<T>(out)), runtime);
  });
  return out;
}

at::Tensor forward_any(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const OptionalTensor& bias, const OptionalTensor& mask,
                       const WindowGeometry& geometry) {
  const WindowShape shape = sasa_shape(q, k, v, bias, mask, geometry);
  return sasa_composite(q, k, v, bias, check_mask(mask, shape, kName), geometry);
}

at::Tensor forward_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const OptionalTensor& bias, const OptionalTensor& mask,
                        const WindowGeometry& geometry) {
  const WindowShape shape = sasa_shape(q, k, v, bias, mask, geometry);
  check_mask_type(mask, shape, kName);
  return empty_map(q);
}

at::Tensor forward_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const OptionalTensor& bias, const OptionalTensor& mask,
                            const WindowGeometry& geometry) {
  // The composite form is differentiable as it is.
  if (!is_fused(OperatorClass::kMap, {q})) return forward_any(q, k, v, bias, mask, geometry);
  const WindowShape shape = sasa_shape(q, k, v, bias, mask, geometry);
  if (!wants_gradient({q, k, v}, {bias})) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return sasa(q, k, v, bias, mask, geometry);
  }
  return sasa_with_gradient(q, k, v, bias, check_mask(mask, shape, kName), geometry);
}

// Maps go to the lower precision; the small table stays as it is.
template <c10::DispatchKey kKey, c10::DeviceType kDevice>
at::Tensor forward_autocast(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const OptionalTensor& bias, const OptionalTensor& mask,
                            const WindowGeometry& geometry) {
  c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  const at::ScalarType type = at::autocast::get_autocast_dtype(kDevice);
  const auto lowered = [&](const at::Tensor& map) {
    return at::autocast::cached_cast(type, map, kDevice);
  };
  return sasa(lowered(q), lowered(k), lowered(v), bias, mask, geometry);
}

using Implementation = decltype(&forward_cpu);

// The operator's flat arguments, as the dispatcher hands them over, with the geometry as a struct.
template <Implementation kImplementation>
at::Tensor unpacked(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const OptionalTensor& bias, const OptionalTensor& mask,
                    at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding,
                    at::IntArrayRef dilation) {
  return kImplementation(q, k, v, bias, mask,
                         make_geometry(kernel_size, stride, padding, dilation, kName));
}

void check_dtype(const at::Tensor& map, const at::Tensor& q, const char* name) {
  check(map.scalar_type() == q.scalar_type(), "{}: {} must have the dtype of q ({}), got {}", kName,
        name, c10::toString(q.scalar_type()), c10::toString(map.scalar_type()));
}

}  // namespace

WindowShape sasa_shape(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const OptionalTensor& bias, const OptionalTensor& mask,
                       const WindowGeometry& geometry) {
  check_rank(q, 5, "[batch, output height, output width, heads, dim]", "q", kName);
  check_rank(k, 5, "[batch, height, width, heads, dim]", "k", kName);
  check_rank(v, 5, "[batch, height, width, heads, dim]", "v", kName);
  check_floating(q, "q", kName);
  check_dtype(k, q, "k");
  check_dtype(v, q, "v");
  check_same_device(q, k, "q", "k", kName);
  check_same_device(q, v, "q", "v", kName);
  check_same_device(q, bias, "q", "bias", kName);
  check_same_device(q, mask, "q", "mask", kName);
  check_sizes(v, k.sizes(), "[batch, height, width, heads, dim] of k", "v", kName);
  const WindowShape shape = make_shape(k.size(0), k.size(1), k.size(2), /*queries=*/1, k.size(3),
                                       k.size(4), geometry, /*separate=*/false, kName);
  check_sizes(q, {shape.batch, shape.out_height(), shape.out_width(), shape.heads, shape.head_dim},
              "[batch, output height, output width, heads, dim] for these k and windows", "q",
              kName);
  check_sizes(bias, {shape.kernel_h, shape.kernel_w, shape.heads},
              "[kernel height, kernel width, heads]", "bias", kName);
  if (bias.has_value() && bias->defined()) check_floating(*bias, "bias", kName);
  return shape;
}

at::Tensor sasa(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const OptionalTensor& bias, const OptionalTensor& mask,
                const WindowGeometry& geometry) {
  register_operators();
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(kName, "")
                             .typed<decltype(unpacked<forward_cpu>)>();
  return op.call(q, k, v, bias, mask, geometry.kernel_size, geometry.stride, geometry.padding,
                 geometry.dilation);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> sasa_backward(
    const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const OptionalTensor& bias, const OptionalTensor& mask, const WindowShape& shape) {
  const Arrays arrays(q, k, v, bias);
  const at::Tensor g = as_pixels(grad_out.to(q.scalar_type()));
  const at::Tensor grad_q = empty_map(q), grad_k = empty_map(k), grad_v = empty_map(v);
  const at::Tensor grad_bias =
      at::empty({shape.kernel_h, shape.kernel_w, shape.heads}, q.options().dtype(at::kFloat));
  TorchRuntime runtime;
  dispatch_type(q.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const kernels::PixelMap<T> no_out{};
    kernels::sasa_backward<T>({.forward = arrays.args<T>(shape, mask, no_out),
                               .grad_out = pixel_map<const T>(g),
                               .grad_q = pixel_map<T>(grad_q),
                               .grad_k = pixel_map<T>(grad_k),
                               .grad_v = pixel_map<T>(grad_v),
                               .grad_bias = pointer<float>(grad_bias)},
                              runtime);
  });
  return {grad_q, grad_k, grad_v, grad_bias};
}

void register_sasa(Libraries& libraries) {
  libraries.definitions.def(
      "sasa(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? mask, int[2] kernel_size, "
      "int[2] stride, int[4] padding, int[2] dilation) -> Tensor");
  libraries.definitions.impl(
      "sasa", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, unpacked<forward_any>));
  libraries.cpu.impl("sasa", unpacked<forward_cpu>);
  libraries.meta.impl("sasa", unpacked<forward_meta>);
  libraries.autograd_cpu.impl("sasa", unpacked<forward_autograd>);
  libraries.autocast_cpu.impl(
      "sasa", unpacked<forward_autocast<c10::DispatchKey::AutocastCPU, c10::DeviceType::CPU>>);
  libraries.autocast_cuda.impl(
      "sasa", unpacked<forward_autocast<c10::DispatchKey::AutocastCUDA, c10::DeviceType::CUDA>>);
}

}  // namespace qna::ops
