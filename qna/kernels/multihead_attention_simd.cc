#include <limits>

#include "qna/kernels/network_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/multihead_attention_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// One head of an image, as AttendQueries wants it.
struct SequenceHead {
  const MultiheadAttentionArgs& args;
  int64_t image, head;

  int64_t row(int64_t i) const { return image * args.queries + i; }
  bool is_key(int64_t m) const {
    return args.mask == nullptr || args.mask[image * args.keys + m] != 0;
  }
  const float* query(int64_t i) const {
    return args.q + row(i) * args.q_stride + head * args.head_dim;
  }
  const float* key(int64_t m) const {
    return args.k + (image * args.keys + m) * args.k_stride + head * args.head_dim;
  }
  const float* value(int64_t m) const {
    if (!is_key(m)) return nullptr;
    return args.v + (image * args.keys + m) * args.v_stride + head * args.head_dim;
  }
  void begin_scores(int64_t, float* scores, int64_t padded) const {
    std::fill_n(scores, args.keys, 0.0f);
    std::fill(scores + args.keys, scores + padded, kNoScore);
  }
  void end_scores(float* HWY_RESTRICT scores) const {
    if (args.mask == nullptr) return;
    const uint8_t* HWY_RESTRICT mask = args.mask + image * args.keys;
    for (int64_t m = 0; m < args.keys; ++m) scores[m] = mask[m] == 0 ? kNoScore : scores[m];
  }
  float* out(int64_t i) const { return args.out + (row(i) * args.heads + head) * args.head_dim; }
  void keep_weights(int64_t i, const float* HWY_RESTRICT scores, float factor) const {
    if (args.weights == nullptr) return;
    float* HWY_RESTRICT to = args.weights + row(i) * args.keys;
    const float share = factor / static_cast<float>(args.heads);
    if (head == 0) std::fill_n(to, args.keys, 0.0f);
    for (int64_t m = 0; m < args.keys; ++m) to[m] += scores[m] * share;
  }
};

// How many parts the queries of each of `units` are cut into. The cut changes no result. Each part
// packs the keys and values anew, which takes the time of about 12 queries.
inline int64_t QueryParts(int64_t units, int64_t queries, int workers) {
  int64_t parts = 1;
  double best = std::numeric_limits<double>::infinity();
  const int64_t most = std::min<int64_t>((queries + kTileRows - 1) / kTileRows, 4 * workers);
  for (int64_t count = 1; count <= most; ++count) {
    const int64_t rounds = (units * count + workers - 1) / workers;
    const int64_t rows = (queries + count - 1) / count;
    const double time = static_cast<double>(rounds * (rows + 12));
    if (time >= best) continue;
    best = time;
    parts = count;
  }
  return parts;
}

void MultiheadAttention(const MultiheadAttentionArgs& args, Runtime& runtime) {
  if (args.keys == 0) {
    std::fill_n(args.out, args.batch * args.queries * args.heads * args.head_dim, 0.0f);
    return;
  }
  AttentionScratch* workers = nullptr;
  const auto carve = [&](ScratchArena arena) {
    workers = arena.take_each(runtime.workers(), [&](ScratchArena& a) {
      return AttentionScratch::carve(a, args.keys, args.head_dim);
    });
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  // Weights are added up over the heads in their order, so all heads of a query are one task's.
  const int64_t task_heads = args.weights == nullptr ? 1 : args.heads;
  const int64_t units = args.batch * args.heads / task_heads;
  const int64_t parts = QueryParts(units, args.queries, runtime.workers());
  const int64_t tiles = (args.queries + kTileRows - 1) / kTileRows;
  runtime.for_each(units * parts, [&](int64_t task, int worker) {
    const int64_t part = task % parts;
    const int64_t first = part * tiles / parts * kTileRows;
    const int64_t end = std::min((part + 1) * tiles / parts * kTileRows, args.queries);
    const int64_t begin_head = task / parts * task_heads;
    for (int64_t h = begin_head; h < begin_head + task_heads; ++h) {
      const SequenceHead head{args, h / args.heads, h % args.heads};
      workers[worker].pack(args.keys, head);
      AttendQueries(workers[worker], first, end, args.scale, head);
    }
  });
}

constexpr MultiheadAttentionKernel kMultiheadAttention = {&MultiheadAttention};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(MultiheadAttentionKernel, multihead_attention_kernel, kMultiheadAttention)
}  // namespace qna::kernels
#endif
