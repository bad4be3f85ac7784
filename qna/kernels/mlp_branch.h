// The second half of a block in training, forward and backward:
//   n = (x - mean) / sqrt(variance + epsilon) over each row
//   h = (g n + s) W1^T + b1
//   y = x + drop_factor (act(h) W2^T + b2)
// where g and s are LayerNorm's scale and shift, W1 and W2 lie as linear layers have them, and
// drop_factor is a factor for each sample of the batch, as stochastic depth draws them. What
// drop_factor drops (0) is not computed: there y = x, and h is not written.
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"
#include "qna/kernels/dense.h"

namespace qna::kernels {

// What both directions are given.
template <typename T>
struct MlpBranchInputs {
  int64_t rows;
  int64_t features;
  int64_t hidden;
  Activation activation;
  double epsilon;
  const T* x;            // [rows, features]
  const T* norm_weight;  // g [features]
  const T* norm_bias;    // s [features]
  const T* weight1;      // [hidden, features]
  const T* bias1;        // [hidden]
  const T* weight2;      // [features, hidden]
  const T* bias2;        // [features]
  const T* drop_factor;  // [rows / drop_rows], or null: all 1
  int64_t drop_rows;     // rows of one sample; divides rows
};

template <typename T>
struct MlpBranchArgs {
  MlpBranchInputs<T> in;
  T* h;  // [rows, hidden], for the backward pass
  T* y;  // [rows, features]; not x
};

template <typename T>
struct MlpBranchBackwardArgs {
  MlpBranchInputs<T> in;
  const T* h;       // from the forward pass
  const T* grad_y;  // [rows, features]
  T* grad_x;        // [rows, features]
  T* grad_norm_weight;
  T* grad_norm_bias;
  T* grad_weight1;
  T* grad_bias1;
  T* grad_weight2;
  T* grad_bias2;
};

// float and double.
template <typename T>
void mlp_branch_reference(const MlpBranchArgs<T>& args, Runtime& runtime);
template <typename T>
void mlp_branch_backward_reference(const MlpBranchBackwardArgs<T>& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h). The backward pass needs
// scratch of about 8 MB and twice the weights, whatever the number of rows.
void mlp_branch(const MlpBranchArgs<float>& args, Runtime& runtime);
void mlp_branch_backward(const MlpBranchBackwardArgs<float>& args, Runtime& runtime);

}  // namespace qna::kernels
