// The SIMD layer, by Highway target.
#pragma once

#include <cstdint>

#include "qna/kernels/layer.h"
#include "qna/kernels/product.h"
#include "qna/kernels/simd_targets.h"

namespace qna::kernels {

struct LayerKernels {
  void (*float32)(const LayerArgs<float>&, Runtime&) = nullptr;
  void (*bfloat16)(const LayerArgs<BFloat16>&, Runtime&) = nullptr;
  void (*float16)(const LayerArgs<Float16>&, Runtime&) = nullptr;
  void (*product)(const ProductArgs&, Runtime&) = nullptr;
};

LayerKernels layer_kernels(int64_t target);

struct LayerBackwardKernels {
  void (*float32)(const LayerBackwardArgs<float>&, Runtime&) = nullptr;
  void (*bfloat16)(const LayerBackwardArgs<BFloat16>&, Runtime&) = nullptr;
  void (*float16)(const LayerBackwardArgs<Float16>&, Runtime&) = nullptr;
};

LayerBackwardKernels layer_backward_kernels(int64_t target);

}  // namespace qna::kernels
