// The kernels of whole blocks, on float32 CPU tensors, without autograd: weights are packed once
// and used by many calls. What decides between these and the differentiable operators is in nn/.
#pragma once

#include <optional>

#include "qna/kernels/dense.h"
#include "qna/ops/layer.h"

namespace qna::ops {

// Whether these kernels serve x here and now: float32 on the CPU, no gradient wanted, no autocast.
bool inference_kernels_serve(const at::Tensor& x);

// Whether the fused forms with gradients do: the same, but that gradients may be wanted.
bool training_kernels_serve(const at::Tensor& x);

// weight [out, in], as torch::nn::Linear has it; bias [out].
kernels::PackedWeights pack_linear(const at::Tensor& weight, const OptionalTensor& bias);

struct DenseOptions {
  kernels::Norm norm = {};
  kernels::Activation activation = kernels::Activation::kNone;
  OptionalTensor residual = std::nullopt;  // like the result
};

// residual + activation(norm(x) W + b) over the last dimension of x.
at::Tensor dense(const at::Tensor& x, const kernels::PackedWeights& weights,
                 const DenseOptions& options = {});

// The second half of a block.
struct PackedMlp {
  kernels::PackedWeights expand;
  kernels::PackedWeights contract;
  kernels::Activation activation = kernels::Activation::kGeluTanh;
  kernels::Norm norm = {.wanted = true};
};

// z + mlp(norm(z)), z = x + mixed W: the last product of self-attention and what follows it.
at::Tensor project_mlp(const at::Tensor& x, const at::Tensor& mixed,
                       const kernels::PackedWeights& project, const PackedMlp& mlp);

// A QnA layer's weights, packed, and what must be known beside them.
struct PackedLayer {
  kernels::PackedWeights weights;
  kernels::WindowShape shape;  // with any batch and map
  WindowGeometry geometry;
  int64_t in_features;
  int64_t out_features;
};
PackedLayer pack_layer(const LayerParameters& parameters, const WindowGeometry& geometry);

// z = residual + layer(norm(x)); x [B, H, W, in]. With an MLP: z + mlp(norm(z)).
at::Tensor layer(const at::Tensor& x, const PackedLayer& layer, const OptionalTensor& mask,
                 kernels::Norm norm, const OptionalTensor& residual,
                 const PackedMlp* mlp = nullptr);

// The mean over the positions of LayerNorm(x): [B, H, W, C] -> [B, C]; masked positions (mask [B,
// H, W]) do not count. Each image by itself and in one order, so that its result does not depend on
// the batch, as LibTorch's mean does.
at::Tensor norm_mean(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon, const OptionalTensor& mask);

}  // namespace qna::ops
