// The SIMD forms of adamw.h, by Highway target.
#pragma once

#include "qna/kernels/adamw.h"
#include "qna/kernels/simd_targets.h"

namespace qna::kernels {

struct AdamWKernels {
  double (*gradient_square_sum)(std::span<const AdamWParameter>, Runtime&) = nullptr;
  void (*adamw)(const AdamWArgs&, Runtime&) = nullptr;
};
AdamWKernels adamw_kernels(int64_t target);

}  // namespace qna::kernels
