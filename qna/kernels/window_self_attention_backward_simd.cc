#include "qna/kernels/dense_simd.h"
#include "qna/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/window_self_attention_backward_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/window_self_attention_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

void WindowSelfAttentionBackward(const WindowSelfAttentionBackwardArgs<float>& backward,
                                 Runtime& runtime) {
  const WindowSelfAttentionArgs<float>& args = backward.forward;
  AttentionGradient gradient(args, args.batch, runtime.workers());
  const auto carve = [&](ScratchArena arena) {
    gradient.carve(arena);
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  gradient.run(backward, AttentionTasks(args), runtime);
  gradient.write_bias(backward.grad_bias);
}

constexpr WindowSelfAttentionBackwardKernel kWindowSelfAttentionBackward = {
    &WindowSelfAttentionBackward};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(WindowSelfAttentionBackwardKernel, window_self_attention_backward_kernel,
                         kWindowSelfAttentionBackward)
}  // namespace qna::kernels
#endif
