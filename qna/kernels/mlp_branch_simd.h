// The SIMD forms of mlp_branch.h, by Highway target.
#pragma once

#include <cstdint>

#include "qna/kernels/mlp_branch.h"
#include "qna/kernels/simd_targets.h"

namespace qna::kernels {

struct MlpBranchKernels {
  void (*forward)(const MlpBranchArgs<float>&, Runtime&) = nullptr;
  void (*backward)(const MlpBranchBackwardArgs<float>&, Runtime&) = nullptr;
};

MlpBranchKernels mlp_branch_kernels(int64_t target);

}  // namespace qna::kernels
