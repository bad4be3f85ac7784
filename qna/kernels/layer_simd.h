// The SIMD layer, by Highway target.
#pragma once

#include <cstdint>

#include "qna/kernels/layer.h"
#include "qna/kernels/simd_targets.h"

namespace qna::kernels {

template <typename T>
struct LayerKernelsOf {
  void (*forward)(const LayerArgs<T>&, Runtime&) = nullptr;
  PackedWeights (*pack)(const LayerArgs<T>&, Runtime&) = nullptr;
};

struct LayerKernels {
  LayerKernelsOf<float> float32;
  LayerKernelsOf<BFloat16> bfloat16;
  LayerKernelsOf<Float16> float16;
};

LayerKernels layer_kernels(int64_t target);

struct LayerBackwardKernels {
  void (*float32)(const LayerBackwardArgs<float>&, Runtime&) = nullptr;
  void (*bfloat16)(const LayerBackwardArgs<BFloat16>&, Runtime&) = nullptr;
  void (*float16)(const LayerBackwardArgs<Float16>&, Runtime&) = nullptr;
};

LayerBackwardKernels layer_backward_kernels(int64_t target);

}  // namespace qna::kernels
