// SIMD stand-alone self-attention, by Highway target.
#pragma once

#include <cstdint>

#include "qna/kernels/sasa.h"
#include "qna/kernels/simd_targets.h"

namespace qna::kernels {

struct SasaKernels {
  void (*float32)(const SasaArgs<float>&, Runtime&) = nullptr;
  void (*bfloat16)(const SasaArgs<BFloat16>&, Runtime&) = nullptr;
  void (*float16)(const SasaArgs<Float16>&, Runtime&) = nullptr;
};

SasaKernels sasa_kernels(int64_t target);

struct SasaBackwardKernels {
  void (*float32)(const SasaBackwardArgs<float>&, Runtime&) = nullptr;
  void (*bfloat16)(const SasaBackwardArgs<BFloat16>&, Runtime&) = nullptr;
  void (*float16)(const SasaBackwardArgs<Float16>&, Runtime&) = nullptr;
};

SasaBackwardKernels sasa_backward_kernels(int64_t target);

}  // namespace qna::kernels
