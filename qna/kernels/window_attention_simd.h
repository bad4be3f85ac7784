// SIMD window attention, by Highway target.
#pragma once

#include <cstdint>

#include "qna/kernels/simd_targets.h"
#include "qna/kernels/window_attention.h"

namespace qna::kernels {

template <typename T>
struct WindowKernelsOf {
  void (*forward)(const WindowAttentionArgs<T>&, Runtime&) = nullptr;
  void (*backward)(const WindowAttentionBackwardArgs<T>&, Runtime&) = nullptr;
};

struct WindowKernels {
  WindowKernelsOf<float> float32;
  WindowKernelsOf<BFloat16> bfloat16;
  WindowKernelsOf<Float16> float16;
};

WindowKernels window_kernels(int64_t target);

}  // namespace qna::kernels
