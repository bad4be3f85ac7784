// The SIMD forms of dense.h, window_self_attention.h and product.h, by Highway target.
#pragma once

#include <cstdint>

#include "qna/kernels/dense.h"
#include "qna/kernels/product.h"
#include "qna/kernels/simd_targets.h"
#include "qna/kernels/window_self_attention.h"

namespace qna::kernels {

struct DenseKernels {
  PackedWeights (*pack_matrix)(const MatrixArgs&, Runtime&) = nullptr;
  void (*dense)(const DenseArgs&, Runtime&) = nullptr;
  void (*mlp)(const MlpArgs&, Runtime&) = nullptr;
  void (*product)(const ProductArgs&, Runtime&) = nullptr;
  int lanes = 0;  // 0: the build has no such target
};

DenseKernels dense_kernels(int64_t target);

struct WindowSelfAttentionKernels {
  void (*forward)(const WindowSelfAttentionArgs<float>&, Runtime&) = nullptr;
};

WindowSelfAttentionKernels window_self_attention_kernels(int64_t target);

struct WindowSelfAttentionBackwardKernel {
  void (*backward)(const WindowSelfAttentionBackwardArgs<float>&, Runtime&) = nullptr;
};

WindowSelfAttentionBackwardKernel window_self_attention_backward_kernel(int64_t target);

}  // namespace qna::kernels
