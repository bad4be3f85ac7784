// Windows of self-attention and their scores, for both directions, and the forward pass.

#if defined(QNA_KERNELS_SELF_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_SELF_ATTENTION_INL_H_
#undef QNA_KERNELS_SELF_ATTENTION_INL_H_
#else
#define QNA_KERNELS_SELF_ATTENTION_INL_H_
#endif

#include <span>

#include "qna/kernels/attention-inl.h"
#include "qna/kernels/window_self_attention.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// A window and one head of it.
struct AttentionWindow {
  int64_t image, head, top, left, rows, columns;
  int64_t place;  // of the image among those that are computed together
  int64_t tokens() const { return rows * columns; }
  int64_t pixel(const WindowSelfAttentionArgs<float>& args, int64_t token) const {
    return pixel_in(args, image, token);
  }
  // Where gradients of the map go, which has only the images that are computed together.
  int64_t grad_pixel(const WindowSelfAttentionArgs<float>& args, int64_t token) const {
    return pixel_in(args, place, token);
  }

 private:
  int64_t pixel_in(const WindowSelfAttentionArgs<float>& args, int64_t number,
                   int64_t token) const {
    const int64_t y = top + token / columns;
    return (number * args.height + y) * args.width + left + token % columns;
  }
};

// The windows and heads of some images as tasks; heads change fastest. It allocates nothing: the
// engine's second image of a size needs no memory from the system.
class AttentionTasks {
 public:
  // Of all images.
  explicit AttentionTasks(const WindowSelfAttentionArgs<float>& args)
      : AttentionTasks(args, nullptr, args.batch) {}
  // Of these, which live as long.
  AttentionTasks(const WindowSelfAttentionArgs<float>& args, std::span<const int64_t> images)
      : AttentionTasks(args, images.data(), static_cast<int64_t>(images.size())) {}

  int64_t of_an_image() const { return rows_ * columns_ * args_.heads; }
  int64_t count() const { return images_count_ * of_an_image(); }
  AttentionWindow at(int64_t task) const {
    const int64_t index = task / args_.heads;
    const int64_t place = index / columns_ / rows_;
    const int64_t top = index / columns_ % rows_ * args_.window_h;
    const int64_t left = index % columns_ * args_.window_w;
    return {.image = images_ == nullptr ? place : images_[place],
            .head = task % args_.heads,
            .top = top,
            .left = left,
            .rows = std::min(args_.window_h, args_.height - top),
            .columns = std::min(args_.window_w, args_.width - left),
            .place = place};
  }

 private:
  AttentionTasks(const WindowSelfAttentionArgs<float>& args, const int64_t* images, int64_t count)
      : args_(args),
        images_(images),
        images_count_(count),
        rows_((args.height - 1) / args.window_h + 1),
        columns_((args.width - 1) / args.window_w + 1) {}

  const WindowSelfAttentionArgs<float>& args_;
  const int64_t* images_;  // null: all
  int64_t images_count_;
  int64_t rows_, columns_;  // of windows
};

// Writes what is added to the products of query `token`: the bias of each key, none for lanes
// without one.
inline void FillScores(const WindowSelfAttentionArgs<float>& args, const AttentionWindow& window,
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
inline void MaskScores(const WindowSelfAttentionArgs<float>& args, const AttentionWindow& window,
                       float* row) {
  if (args.mask == nullptr) return;
  for (int64_t t = 0; t < window.tokens(); ++t) {
    if (args.mask[window.pixel(args, t)] == 0) row[t] = kNoScore;
  }
}

// A window and one head of it, as AttendQueries wants it.
struct WindowHead {
  const WindowSelfAttentionArgs<float>& args;
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

// The forward pass of some images, with each worker's memory.
class AttentionForward {
 public:
  void carve(ScratchArena& arena, const WindowSelfAttentionArgs<float>& args, int workers) {
    workers_ = arena.take_each(workers, [&](ScratchArena& a) {
      return AttentionScratch::carve(a, args.window_h * args.window_w, args.head_dim);
    });
  }
  void run(const WindowSelfAttentionArgs<float>& args, const AttentionTasks& tasks,
           Runtime& runtime) const {
    runtime.for_each(tasks.count(), [&](int64_t task, int worker) {
      const AttentionWindow window = tasks.at(task);
      const WindowHead head{args, window};
      workers_[worker].pack(window.tokens(), head);
      AttendQueries(workers_[worker], 0, window.tokens(), args.scale, head);
    });
  }

 private:
  AttentionScratch* workers_ = nullptr;
};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_SELF_ATTENTION_INL_H_
