// The SIMD forms of window_self_attention_branch.h, by Highway target.
#pragma once

#include <cstdint>

#include "qna/kernels/simd_targets.h"
#include "qna/kernels/window_self_attention_branch.h"

namespace qna::kernels {

struct WindowSelfAttentionBranchKernels {
  void (*forward)(const WindowSelfAttentionBranchArgs<float>&, Runtime&) = nullptr;
  void (*backward)(const WindowSelfAttentionBranchBackwardArgs<float>&, Runtime&) = nullptr;
};

WindowSelfAttentionBranchKernels window_self_attention_branch_kernels(int64_t target);

}  // namespace qna::kernels
