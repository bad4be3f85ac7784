// A window of self-attention and its scores, for both directions.

#if defined(QNA_KERNELS_SELF_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_SELF_ATTENTION_INL_H_
#undef QNA_KERNELS_SELF_ATTENTION_INL_H_
#else
#define QNA_KERNELS_SELF_ATTENTION_INL_H_
#endif

#include "qna/kernels/attention-inl.h"
#include "qna/kernels/window_self_attention.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// A window and one head of it.
struct AttentionWindow {
  static int64_t count(const WindowSelfAttentionArgs& args) {
    return args.batch * ((args.height - 1) / args.window_h + 1) *
           ((args.width - 1) / args.window_w + 1) * args.heads;
  }
  // Heads change fastest.
  static AttentionWindow at(const WindowSelfAttentionArgs& args, int64_t task) {
    const int64_t window_rows = (args.height - 1) / args.window_h + 1;
    const int64_t window_columns = (args.width - 1) / args.window_w + 1;
    const int64_t index = task / args.heads;
    const int64_t top = index / window_columns % window_rows * args.window_h;
    const int64_t left = index % window_columns * args.window_w;
    return {.image = index / window_columns / window_rows,
            .head = task % args.heads,
            .top = top,
            .left = left,
            .rows = std::min(args.window_h, args.height - top),
            .columns = std::min(args.window_w, args.width - left)};
  }

  int64_t image, head, top, left, rows, columns;
  int64_t tokens() const { return rows * columns; }
  int64_t pixel(const WindowSelfAttentionArgs& args, int64_t token) const {
    const int64_t y = top + token / columns;
    return (image * args.height + y) * args.width + left + token % columns;
  }
};

// Writes what is added to the products of query `token`: the bias of each key, none for lanes
// without one.
inline void FillScores(const WindowSelfAttentionArgs& args, const AttentionWindow& window,
                       int64_t token, float* HWY_RESTRICT scores, int64_t padded) {
  const int64_t y = token / window.columns;
  const int64_t x = token % window.columns;
  if (args.bias == nullptr) {
    std::fill_n(scores, window.tokens(), 0.0f);
  } else {
    const int64_t row_floats = 2 * args.bias_w - 1;
    const float* HWY_RESTRICT table =
        args.bias + (window.head * (2 * args.bias_h - 1) + args.bias_h - 1 - y) * row_floats +
        args.bias_w - 1 - x;
    for (int64_t row = 0; row < window.rows; ++row) {
      std::memcpy(scores + row * window.columns, table + row * row_floats,
                  window.columns * sizeof(float));
    }
  }
  std::fill(scores + window.tokens(), scores + padded, kNoScore);
}

// Masked pixels are no keys.
inline void MaskScores(const WindowSelfAttentionArgs& args, const AttentionWindow& window,
                       float* row) {
  if (args.mask == nullptr) return;
  for (int64_t t = 0; t < window.tokens(); ++t) {
    if (args.mask[window.pixel(args, t)] == 0) row[t] = kNoScore;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_SELF_ATTENTION_INL_H_
