#include "qna/kernels/sasa.h"

#include <algorithm>

#include "operators.h"
#include "qna/base/error.h"
#include "runtime.h"

namespace qna::python {
namespace {

using kernels::WindowShape;

// Whether heads, not dimensions, are the fast index of a map [B, H, W, heads, dim].
bool heads_fast(const Tensor& map) { return map.stride(3) < map.stride(4); }

// An uninitialised map like this one, with the same order of channels and nothing in between.
Tensor empty_map(const Tensor& like) {
  constexpr int kHeadsFast[] = {0, 1, 2, 4, 3};
  return empty(sizes_of(like), map_type(like),
               heads_fast(like) ? std::span<const int>(kHeadsFast) : std::span<const int>());
}

// From one pixel to the next, if all are at that distance and the channels of each lie within it; 0
// if not.
int64_t pixel_stride(const Tensor& map) {
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
Tensor as_pixels(const Tensor& map) {
  if (map.numel() == 0 || pixel_stride(map) != 0) return map;
  if (!heads_fast(map)) return as_contiguous(map);
  return torch::stable::transpose(as_contiguous(torch::stable::transpose(map, 3, 4)), 3, 4);
}

template <typename T>
kernels::PixelMap<T> pixel_map(const Tensor& map) {
  return {pointer<T>(map), {pixel_stride(map), map.stride(3), map.stride(4)}};
}

WindowShape check_sasa(const Tensor& q, const Tensor& k, const Tensor& v,
                       const OptionalTensor& bias, const Geometry& geometry, const char* caller) {
  check_map(q, 5, "q", caller);
  check_map(k, 5, "k", caller);
  check_map(v, 5, "v", caller);
  check(map_type(k) == map_type(q) && map_type(v) == map_type(q),
        "{}: k and v must have the dtype of q", caller);
  check_sizes(v, {k.size(0), k.size(1), k.size(2), k.size(3), k.size(4)}, "v", caller);
  const WindowShape shape = make_shape(k.size(0), k.size(1), k.size(2), /*queries=*/1, k.size(3),
                                       k.size(4), geometry, false, caller);
  check_sizes(q, {shape.batch, shape.out_height(), shape.out_width(), shape.heads, shape.head_dim},
              "q", caller);
  check_sizes(bias, {shape.kernel_h, shape.kernel_w, shape.heads}, "bias", caller);
  return shape;
}

// The tensors as the kernels take them, held while one runs.
struct SasaArrays {
  SasaArrays(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
             const OptionalTensor& bias_in, const OptionalTensor& mask_in, const char* caller)
      : q(as_pixels(q_in)),
        k(as_pixels(k_in)),
        v(as_pixels(v_in)),
        bias(as_table(bias_in)),
        mask(check_mask(mask_in, sizes_of(k_in).first(3), caller)) {}

  template <typename T>
  kernels::SasaArgs<T> args(const WindowShape& shape, const kernels::PixelMap<T>& out) const {
    return {.shape = shape,
            .q = pixel_map<const T>(q),
            .k = pixel_map<const T>(k),
            .v = pixel_map<const T>(v),
            .bias = table_pointer(bias),
            .mask = mask_pointer(mask),
            .out = out};
  }

  Tensor q, k, v;
  OptionalTensor bias, mask;
};

}  // namespace

Tensor sasa(Tensor q, Tensor k, Tensor v, OptionalTensor bias, OptionalTensor mask,
            Integers kernel_size, Integers stride, Integers padding, Integers dilation) {
  const char* caller = "qna::sasa";
  const WindowShape shape = check_sasa(
      q, k, v, bias, make_geometry(kernel_size, stride, padding, dilation, caller), caller);
  const SasaArrays arrays(q, k, v, bias, mask, caller);
  const Tensor out = empty_map(q);
  TorchRuntime runtime;
  dispatch_type(map_type(q), [&](auto zero) {
    using T = decltype(zero);
    kernels::sasa_forward<T>(arrays.args<T>(shape, pixel_map<T>(out)), runtime);
  });
  return out;
}

Tensors4 sasa_backward(Tensor grad_out, Tensor q, Tensor k, Tensor v, OptionalTensor bias,
                       OptionalTensor mask, Integers kernel_size, Integers stride, Integers padding,
                       Integers dilation) {
  const char* caller = "qna::sasa_backward";
  const WindowShape shape = check_sasa(
      q, k, v, bias, make_geometry(kernel_size, stride, padding, dilation, caller), caller);
  check(std::ranges::equal(sizes_of(grad_out), sizes_of(q)), "{}: grad_out must be like q", caller);
  const SasaArrays arrays(q, k, v, bias, mask, caller);
  const Tensor g = as_pixels(as_type(grad_out, map_type(q)));
  const Tensor grad_q = empty_map(q), grad_k = empty_map(k), grad_v = empty_map(v);
  const Tensor grad_bias = table({shape.kernel_h, shape.kernel_w, shape.heads});
  TorchRuntime runtime;
  dispatch_type(map_type(q), [&](auto zero) {
    using T = decltype(zero);
    kernels::sasa_backward<T>({.forward = arrays.args<T>(shape, kernels::PixelMap<T>{}),
                               .grad_out = pixel_map<const T>(g),
                               .grad_q = pixel_map<T>(grad_q),
                               .grad_k = pixel_map<T>(grad_k),
                               .grad_v = pixel_map<T>(grad_v),
                               .grad_bias = pointer<float>(grad_bias)},
                              runtime);
  });
  return {grad_q, grad_k, grad_v, grad_bias};
}

}  // namespace qna::python
