// The operator qna::sasa: stand-alone self-attention. Every output pixel has a query of its own and
// attends to the window of keys and values around it.
#pragma once

#include <tuple>

#include "qna/ops/geometry.h"

namespace qna::ops {

// out[i, j] = sum_t softmax_t(<q[i, j], k[n(t)]> + bias[t]) v[n(t)], per head, over the taps t of
// window (i, j); n(t) is the pixel under tap t. A factor such as 1 / sqrt(dim) belongs into q.
//   q     [B, OH, OW, heads, dim]
//   k, v  [B, H, W, heads, dim], of q's dtype
//   bias  [kh, kw, heads], relative bias; optional
//   mask  [B, H, W] bool, true takes part as key and value; optional. Queries are not masked.
// Returns [B, OH, OW, heads, dim]. A window in which nothing takes part gives 0, with gradient 0.
//
// On the CPU in float32, bfloat16 and float16 the fused kernels run, forward and backward, with no
// memory that grows with the window; they keep q, k and v for the backward pass. Other devices and
// dtypes use the composite form. Differentiable twice (the second time composite).
//
// Fastest, because nothing is reordered, with heads as the fast index in memory: maps stored as
// [.., dim, heads], given as their transpose. Pixels may be further apart than heads * dim, as the
// thirds of one product's columns are. The fused kernels store the result in q's order of channels.
at::Tensor sasa(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const OptionalTensor& bias, const OptionalTensor& mask,
                const WindowGeometry& geometry);

// The same in ATen operators, by unfolding keys and values: for every device and dtype, and
// differentiable any number of times. Its memory grows with the window: kh * kw maps of keys and as
// many of values.
at::Tensor sasa_composite(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const OptionalTensor& bias, const OptionalTensor& mask,
                          const WindowGeometry& geometry);

// The checked shape of these arguments; throws qna::Error.
kernels::WindowShape sasa_shape(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const OptionalTensor& bias, const OptionalTensor& mask,
                                const WindowGeometry& geometry);

// Gradients of q, k, v and bias by the fused kernels, CPU only. The last is float32 whatever the
// maps' dtype, and there also if bias is not given.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> sasa_backward(
    const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const OptionalTensor& bias, const OptionalTensor& mask, const kernels::WindowShape& shape);

}  // namespace qna::ops
