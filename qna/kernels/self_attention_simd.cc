#include "qna/kernels/dense_simd.h"
#include "qna/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/self_attention_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/self_attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// One worker's memory: a window's queries, keys and values of one head, and a chunk of scores.
struct AttentionScratch {
  static AttentionScratch carve(ScratchArena& arena, int64_t tokens, int64_t dim) {
    const int64_t lanes = Lanes();
    const int64_t padded = (tokens + lanes - 1) / lanes * lanes;
    const int64_t dim_padded = (dim + lanes - 1) / lanes * lanes;
    // Query rows by chunks, so that the scores of a large window stay in the second-level cache.
    const int64_t fit = (192 << 10) / (padded * int64_t{sizeof(float)});
    AttentionScratch s;
    s.chunk = std::clamp<int64_t>(fit / kTileRows * kTileRows, kTileRows, 16 * kTileRows);
    s.queries = arena.take<float>(tokens * dim);
    s.keys = arena.take<float>(dim * padded);
    s.values = arena.take<float>(tokens * dim_padded);
    s.zeros = arena.take<float>(std::max(padded, dim_padded));
    s.scores = arena.take<float>(s.chunk * padded);
    s.out = arena.take<float>(s.chunk * dim_padded);
    s.sums = arena.take<float>(s.chunk);
    return s;
  }
  int64_t chunk;
  float* queries;  // [tokens][dim], scaled
  float* keys;     // packed, [dim] x [tokens]
  float* values;   // packed, [tokens] x [dim]
  float* zeros;    // the products' bias
  float* scores;   // [chunk][tokens, padded]
  float* out;      // [chunk][dim, padded]
  float* sums;     // [chunk]
};

// Brings the head's queries (scaled), keys (transposed, packed) and values (packed) together. A
// masked pixel's values become 0, since its weight, 0, times inf would be NaN.
inline void Gather(const SelfAttentionArgs& args, const AttentionWindow& window,
                   const AttentionScratch& s) {
  const int64_t lanes = Lanes();
  const int64_t dim = args.head_dim;
  const int64_t features = args.heads * dim;
  const int64_t tokens = window.tokens();
  const int64_t key_vectors = (tokens + lanes - 1) / lanes;
  const int64_t value_vectors = (dim + lanes - 1) / lanes;
  int64_t token = 0;
  for (int64_t p = 0; p < PanelCount(key_vectors); ++p) {
    const int64_t begin = PanelBegin(key_vectors, p) * lanes;
    const int64_t width = PanelBegin(key_vectors, p + 1) * lanes - begin;
    float* HWY_RESTRICT panel = s.keys + begin * dim;
    for (int64_t c = 0; c < width; ++c, ++token) {
      if (token >= tokens) {  // the last vector's rest
        for (int64_t k = 0; k < dim; ++k) panel[k * width + c] = 0.0f;
        continue;
      }
      const float* HWY_RESTRICT from =
          args.qkv + window.pixel(args, token) * 3 * features + window.head * dim;
      for (int64_t k = 0; k < dim; ++k) {
        s.queries[token * dim + k] = from[k] * args.scale;
        panel[k * width + c] = from[features + k];
      }
    }
  }
  for (int64_t p = 0; p < PanelCount(value_vectors); ++p) {
    const int64_t begin = PanelBegin(value_vectors, p) * lanes;
    const int64_t width = PanelBegin(value_vectors, p + 1) * lanes - begin;
    float* HWY_RESTRICT panel = s.values + begin * tokens;
    const int64_t whole = std::min(width, dim - begin);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t pixel = window.pixel(args, t);
      const float* HWY_RESTRICT from =
          args.qkv + (pixel * 3 + 2) * features + window.head * dim + begin;
      const bool masked = args.mask != nullptr && args.mask[pixel] == 0;
      const int64_t taken = masked ? 0 : whole;
      for (int64_t c = 0; c < taken; ++c) panel[t * width + c] = from[c];
      for (int64_t c = taken; c < width; ++c) panel[t * width + c] = 0.0f;
    }
  }
}

inline void AttendWindow(const SelfAttentionArgs& args, const AttentionWindow& window,
                         const AttentionScratch& s) {
  const int64_t lanes = Lanes();
  const int64_t dim = args.head_dim;
  const int64_t tokens = window.tokens();
  const int64_t padded = (tokens + lanes - 1) / lanes * lanes;
  const int64_t value_vectors = (dim + lanes - 1) / lanes;
  Gather(args, window, s);
  std::fill_n(s.zeros, std::max(padded, value_vectors * lanes), 0.0f);
  const PackedMatrix keys{s.keys, s.zeros, dim, padded / lanes, padded};
  const PackedMatrix values{s.values, s.zeros, tokens, value_vectors, value_vectors * lanes};

  for (int64_t first = 0; first < tokens; first += s.chunk) {
    const int64_t rows = std::min(s.chunk, tokens - first);
    for (int64_t r = 0; r < rows; ++r) {
      FillScores(args, window, first + r, s.scores + r * padded, padded);
    }
    Gemm(s.scores, padded, s.queries + first * dim, dim, rows, keys, {s.scores, padded});
    for (int64_t r = 0; r < rows; ++r) {
      float* row = s.scores + r * padded;
      MaskScores(args, window, row);
      s.sums[r] = Exponentiate(row, padded);
    }
    Gemm(s.out, values.columns, s.scores, padded, rows, values);
    for (int64_t r = 0; r < rows; ++r) {
      const float factor = s.sums[r] == 0.0f ? 0.0f : 1.0f / s.sums[r];
      float* HWY_RESTRICT to =
          args.out + (window.pixel(args, first + r) * args.heads + window.head) * dim;
      for (int64_t c = 0; c < dim; ++c) to[c] = s.out[r * values.columns + c] * factor;
    }
  }
}

void SelfAttention(const SelfAttentionArgs& args, Runtime& runtime) {
  std::vector<AttentionScratch> workers(runtime.workers());
  const auto carve = [&](ScratchArena arena) {
    for (AttentionScratch& worker : workers) {
      worker = AttentionScratch::carve(arena, args.window_h * args.window_w, args.head_dim);
    }
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  runtime.for_each(AttentionWindow::count(args), [&](int64_t task, int worker) {
    AttendWindow(args, AttentionWindow::at(args, task), workers[worker]);
  });
}

constexpr SelfAttentionKernels kSelfAttentionKernels = {&SelfAttention};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(SelfAttentionKernels, self_attention_kernels, kSelfAttentionKernels)
}  // namespace qna::kernels
#endif
