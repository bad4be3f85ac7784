#include "qna/kernels/dense_simd.h"
#include "qna/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/window_self_attention_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/window_self_attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

void WindowSelfAttention(const WindowSelfAttentionArgs<float>& args, Runtime& runtime) {
  AttentionForward forward;
  const auto carve = [&](ScratchArena arena) {
    forward.carve(arena, args, runtime.workers());
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  forward.run(args, AttentionTasks(args), runtime);
}

constexpr WindowSelfAttentionKernels kWindowSelfAttentionKernels = {&WindowSelfAttention};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(WindowSelfAttentionKernels, window_self_attention_kernels,
                         kWindowSelfAttentionKernels)
}  // namespace qna::kernels
#endif
