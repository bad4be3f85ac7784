#include "qna/kernels/dense_simd.h"
#include "qna/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/self_attention_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

constexpr float kNoScore = -3.0e38f;  // below every real score; finite, so that differences are

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

// A window and one head of it.
struct AttentionWindow {
  int64_t image, head, top, left, rows, columns;
  int64_t tokens() const { return rows * columns; }
  int64_t pixel(const SelfAttentionArgs& args, int64_t token) const {
    const int64_t y = top + token / columns;
    return (image * args.height + y) * args.width + left + token % columns;
  }
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

// Writes what is added to the products of query `token`: the bias of each key, none for lanes
// without one.
inline void FillScores(const SelfAttentionArgs& args, const AttentionWindow& window, int64_t token,
                       float* HWY_RESTRICT scores, int64_t padded) {
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

// scores -> exp(score - the row's largest); returns their sum. Masked keys and padding give 0, a
// NaN stays one (Exp2 would lose it).
inline float Exponentiate(float* HWY_RESTRICT scores, int64_t padded) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  FloatVector largest = hn::Load(d, scores);
  for (int64_t c = lanes; c < padded; c += lanes)
    largest = hn::Max(largest, hn::Load(d, scores + c));
  const FloatVector top = hn::MaxOfLanes(d, largest);
  // All keys masked: no weight at all.
  const FloatVector nothing = hn::Set(d, kNoScore / 2);
  FloatVector sum = hn::Zero(d);
  for (int64_t c = 0; c < padded; c += lanes) {
    const FloatVector score = hn::Load(d, scores + c);
    const FloatVector e = Exp2(hn::Mul(hn::Sub(score, top), hn::Set(d, kLog2E)));
    const FloatVector kept = hn::IfThenZeroElse(hn::Lt(score, nothing), e);
    const FloatVector weight = hn::IfThenElse(hn::IsNaN(score), score, kept);
    hn::Store(weight, d, scores + c);
    sum = hn::Add(sum, weight);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
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
      if (args.mask != nullptr) {
        for (int64_t t = 0; t < tokens; ++t) {
          if (args.mask[window.pixel(args, t)] == 0) row[t] = kNoScore;
        }
      }
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
  const int64_t window_rows = (args.height - 1) / args.window_h + 1;
  const int64_t window_columns = (args.width - 1) / args.window_w + 1;
  std::vector<AttentionScratch> workers(runtime.workers());
  const auto carve = [&](ScratchArena arena) {
    for (AttentionScratch& worker : workers) {
      worker = AttentionScratch::carve(arena, args.window_h * args.window_w, args.head_dim);
    }
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  const int64_t tasks = args.batch * window_rows * window_columns * args.heads;
  runtime.for_each(tasks, [&](int64_t task, int worker) {
    const int64_t index = task / args.heads;
    const int64_t top = index / window_columns % window_rows * args.window_h;
    const int64_t left = index % window_columns * args.window_w;
    const AttentionWindow window{.image = index / window_columns / window_rows,
                                 .head = task % args.heads,
                                 .top = top,
                                 .left = left,
                                 .rows = std::min(args.window_h, args.height - top),
                                 .columns = std::min(args.window_w, args.width - left)};
    AttendWindow(args, window, workers[worker]);
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
