// The second half of a block with gradients: x + drop_factor mlp(norm(x)).
#pragma once

#include "qna/kernels/dense.h"
#include "qna/ops/geometry.h"

namespace qna::ops {

struct MlpBranchParameters {
  at::Tensor norm_weight;  // [features]
  at::Tensor norm_bias;    // [features]
  at::Tensor weight1;      // [hidden, features]
  at::Tensor bias1;        // [hidden]
  at::Tensor weight2;      // [features, hidden]
  at::Tensor bias2;        // [features]
  kernels::Activation activation = kernels::Activation::kGeluTanh;
  double epsilon = 1e-6;
};

// x [B, ..., features]; drop_factor [B]: a factor for each sample, 0 drops the branch there;
// optional.
//
// In float32 on the CPU, outside autocast, the fused kernels of kernels/mlp_branch.h run, which
// keep x and the hidden features before the activation for the backward pass. Elsewhere, and for
// gradients of gradients, the same by ATen operators.
at::Tensor mlp_branch(const at::Tensor& x, const MlpBranchParameters& parameters,
                      const OptionalTensor& drop_factor);

// The ATen form, for every device and dtype, differentiable any number of times.
at::Tensor mlp_branch_composite(const at::Tensor& x, const MlpBranchParameters& parameters,
                                const OptionalTensor& drop_factor);

}  // namespace qna::ops
