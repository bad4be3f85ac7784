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

// A window and one head of it, as AttendQueries wants it.
struct WindowHead {
  const WindowSelfAttentionArgs& args;
  const AttentionWindow& window;

  const float* part(int64_t token, int64_t which) const {
    return args.qkv +
           ((window.pixel(args, token) * 3 + which) * args.heads + window.head) * args.head_dim;
  }
  const float* query(int64_t token) const { return part(token, 0); }
  const float* key(int64_t token) const { return part(token, 1); }
  const float* value(int64_t token) const {
    const bool masked = args.mask != nullptr && args.mask[window.pixel(args, token)] == 0;
    return masked ? nullptr : part(token, 2);
  }
  void begin_scores(int64_t token, float* scores, int64_t padded) const {
    FillScores(args, window, token, scores, padded);
  }
  void end_scores(float* scores) const { MaskScores(args, window, scores); }
  float* out(int64_t token) const {
    return args.out + (window.pixel(args, token) * args.heads + window.head) * args.head_dim;
  }
  void keep_weights(int64_t, const float*, float) const {}
};

inline void AttendWindow(const WindowSelfAttentionArgs& args, const AttentionWindow& window,
                         AttentionScratch& s) {
  const WindowHead head{args, window};
  s.pack(window.tokens(), head);
  AttendQueries(s, 0, window.tokens(), args.scale, head);
}

void WindowSelfAttention(const WindowSelfAttentionArgs& args, Runtime& runtime) {
  AttentionScratch* workers = nullptr;
  const auto carve = [&](ScratchArena arena) {
    workers = arena.take_each(runtime.workers(), [&](ScratchArena& a) {
      return AttentionScratch::carve(a, args.window_h * args.window_w, args.head_dim);
    });
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  runtime.for_each(AttentionWindow::count(args), [&](int64_t task, int worker) {
    AttendWindow(args, AttentionWindow::at(args, task), workers[worker]);
  });
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
