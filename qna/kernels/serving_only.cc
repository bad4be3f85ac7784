// In the place of the kernels that serving does without, in a build that leaves them out.
#include "qna/kernels/adamw_simd.h"
#include "qna/kernels/dense_simd.h"
#include "qna/kernels/mlp_branch_simd.h"
#include "qna/kernels/qna_layer_simd.h"
#include "qna/kernels/sasa_simd.h"
#include "qna/kernels/window_attention_simd.h"
#include "qna/kernels/window_self_attention_branch_simd.h"

namespace qna::kernels {

WindowKernels window_kernels(int64_t) { return {}; }
QnALayerBackwardKernels qna_layer_backward_kernels(int64_t) { return {}; }
SasaBackwardKernels sasa_backward_kernels(int64_t) { return {}; }
WindowSelfAttentionBackwardKernel window_self_attention_backward_kernel(int64_t) { return {}; }
WindowSelfAttentionBranchKernels window_self_attention_branch_kernels(int64_t) { return {}; }
MlpBranchKernels mlp_branch_kernels(int64_t) { return {}; }
AdamWKernels adamw_kernels(int64_t) { return {}; }

}  // namespace qna::kernels
