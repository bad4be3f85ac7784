// The SIMD forms of the kernels that whole networks need besides dense.h's, by Highway target.
#pragma once

#include <cstdint>

#include "qna/kernels/bilinear.h"
#include "qna/kernels/convolution.h"
#include "qna/kernels/depthwise.h"
#include "qna/kernels/instance_norm.h"
#include "qna/kernels/layer_norm.h"
#include "qna/kernels/multihead_attention.h"
#include "qna/kernels/pool.h"
#include "qna/kernels/simd_targets.h"

namespace qna::kernels {

struct ConvolutionKernel {
  void (*convolution)(const ConvolutionArgs&, Runtime&) = nullptr;
};
struct DepthwiseKernel {
  void (*depthwise)(const DepthwiseArgs&, Runtime&) = nullptr;
};
struct PoolKernels {
  void (*max)(const PoolArgs&, Runtime&) = nullptr;
  void (*average)(const PoolArgs&, Runtime&) = nullptr;
};
struct InstanceNormKernel {
  void (*instance_norm)(const InstanceNormArgs&, Runtime&) = nullptr;
};
struct BilinearKernel {
  void (*bilinear)(const BilinearArgs&, Runtime&) = nullptr;
};
struct MultiheadAttentionKernel {
  void (*multihead_attention)(const MultiheadAttentionArgs&, Runtime&) = nullptr;
};
struct LayerNormKernels {
  void (*layer_norm)(const LayerNormArgs&, Runtime&) = nullptr;
  void (*norm_mean)(const NormMeanArgs&, Runtime&) = nullptr;
};

ConvolutionKernel convolution_kernel(int64_t target);
DepthwiseKernel depthwise_kernel(int64_t target);
PoolKernels pool_kernels(int64_t target);
InstanceNormKernel instance_norm_kernel(int64_t target);
BilinearKernel bilinear_kernel(int64_t target);
MultiheadAttentionKernel multihead_attention_kernel(int64_t target);
LayerNormKernels layer_norm_kernels(int64_t target);

}  // namespace qna::kernels
