// The SIMD layer, by Highway target.
#pragma once

#include <cstdint>

#include "qna/kernels/qna_layer.h"
#include "qna/kernels/simd_targets.h"

namespace qna::kernels {

template <typename T>
struct QnALayerKernelsOf {
  void (*forward)(const QnALayerArgs<T>&, Runtime&) = nullptr;
  PackedWeights (*pack)(const QnALayerArgs<T>&, Runtime&) = nullptr;
};

struct QnALayerKernels {
  QnALayerKernelsOf<float> float32;
  QnALayerKernelsOf<BFloat16> bfloat16;
  QnALayerKernelsOf<Float16> float16;
};

QnALayerKernels qna_layer_kernels(int64_t target);

struct QnALayerBackwardKernels {
  void (*float32)(const QnALayerBackwardArgs<float>&, Runtime&) = nullptr;
  void (*bfloat16)(const QnALayerBackwardArgs<BFloat16>&, Runtime&) = nullptr;
  void (*float16)(const QnALayerBackwardArgs<Float16>&, Runtime&) = nullptr;
};

QnALayerBackwardKernels qna_layer_backward_kernels(int64_t target);

}  // namespace qna::kernels
