// Attention of some queries to the keys of one head: the scores of a chunk of queries, their
// softmax, and the sums of the values, while the scores are in cache.

#if defined(QNA_KERNELS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_ATTENTION_INL_H_
#undef QNA_KERNELS_ATTENTION_INL_H_
#else
#define QNA_KERNELS_ATTENTION_INL_H_
#endif

#include "qna/kernels/exp-inl.h"
#include "qna/kernels/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

constexpr float kNoScore = -3.0e38f;  // below every real score; finite, so that differences are

// scores -> exp(score - the row's largest); returns their sum. Masked keys and padding give 0. A
// NaN stays one, and a score of +inf becomes one, as in the formula.
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
    const FloatVector e = Exp2Below(hn::Mul(hn::Sub(score, top), hn::Set(d, kLog2E)));
    const FloatVector weight = hn::IfThenZeroElse(hn::Lt(score, nothing), e);
    hn::Store(weight, d, scores + c);
    sum = hn::Add(sum, weight);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Rows of one head as the right side of a product. row_of(token) is where a row lies; null stands
// for zeros.
struct TokenMatrix {
  void carve(ScratchArena& arena, int64_t inner, int64_t columns, float* zeros) {
    const int64_t vectors = (columns + Lanes() - 1) / Lanes();
    data = arena.take<float>(inner * vectors * Lanes());
    matrix = {data, zeros, inner, vectors, columns};
  }
  // As [dim] x [tokens] with the last vector filled up: products have no partial columns.
  template <typename RowOf>
  void pack_transposed(int64_t tokens, int64_t dim, float* zeros, const RowOf& row_of) {
    const int64_t lanes = Lanes();
    const int64_t vectors = (tokens + lanes - 1) / lanes;
    for (int64_t p = 0; p < PanelCount(vectors); ++p) {
      const int64_t begin = PanelBegin(vectors, p) * lanes;
      const int64_t width = PanelBegin(vectors, p + 1) * lanes - begin;
      float* HWY_RESTRICT panel = data + begin * dim;
      for (int64_t c = 0; c < width; ++c) {
        const float* HWY_RESTRICT from = begin + c < tokens ? row_of(begin + c) : nullptr;
        if (from == nullptr) {
          for (int64_t k = 0; k < dim; ++k) panel[k * width + c] = 0.0f;
        } else {
          for (int64_t k = 0; k < dim; ++k) panel[k * width + c] = from[k];
        }
      }
    }
    matrix = {data, zeros, dim, vectors, vectors * lanes};
  }
  // As [tokens] x [dim].
  template <typename RowOf>
  void pack(int64_t tokens, int64_t dim, float* zeros, const RowOf& row_of) {
    const int64_t lanes = Lanes();
    const int64_t vectors = (dim + lanes - 1) / lanes;
    for (int64_t p = 0; p < PanelCount(vectors); ++p) {
      const int64_t begin = PanelBegin(vectors, p) * lanes;
      const int64_t width = PanelBegin(vectors, p + 1) * lanes - begin;
      float* HWY_RESTRICT panel = data + begin * tokens;
      for (int64_t t = 0; t < tokens; ++t, panel += width) {
        const float* from = row_of(t);
        const int64_t valid = from == nullptr ? 0 : std::min(width, dim - begin);
        std::copy_n(from + (valid == 0 ? 0 : begin), valid, panel);
        std::fill(panel + valid, panel + width, 0.0f);
      }
    }
    matrix = {data, zeros, tokens, vectors, dim};
  }
  float* data;
  PackedMatrix matrix;
};

// One worker's memory: the keys and values of one head, and a chunk of queries with their scores.
struct AttentionScratch {
  static AttentionScratch carve(ScratchArena& arena, int64_t tokens, int64_t dim) {
    const int64_t lanes = Lanes();
    const int64_t padded = (std::max<int64_t>(tokens, 1) + lanes - 1) / lanes * lanes;
    const int64_t dim_padded = (dim + lanes - 1) / lanes * lanes;
    AttentionScratch s;
    s.dim = dim;
    // Query rows by chunks, so that the scores of many keys stay in the second-level cache.
    const int64_t fit = (192 << 10) / (padded * int64_t{sizeof(float)});
    s.chunk = std::clamp<int64_t>(fit / kTileRows * kTileRows, kTileRows, 16 * kTileRows);
    s.zeros_count = std::max(padded, dim_padded);
    s.zeros = arena.take<float>(s.zeros_count);
    s.keys.carve(arena, dim, padded, s.zeros);
    s.values.carve(arena, tokens, dim, s.zeros);
    s.queries = arena.take<float>(s.chunk * dim);
    s.scores = arena.take<float>(s.chunk * padded);
    s.out = arena.take<float>(s.chunk * dim_padded);
    s.sums = arena.take<float>(s.chunk);
    return s;
  }
  // rows.value of a masked token is null: its weight, 0, times inf would be NaN.
  template <typename Rows>
  void pack(int64_t tokens, const Rows& rows) {
    std::fill_n(zeros, zeros_count, 0.0f);
    keys.pack_transposed(tokens, dim, zeros, [&](int64_t t) { return rows.key(t); });
    values.pack(tokens, dim, zeros, [&](int64_t t) { return rows.value(t); });
    values.matrix.columns = values.matrix.vectors * Lanes();  // no partial columns
  }

  int64_t dim, chunk, zeros_count;
  float* zeros;  // the products' bias
  TokenMatrix keys, values;
  float* queries;  // [chunk][dim], scaled
  float* scores;   // [chunk][tokens, padded]
  float* out;      // [chunk][dim, padded]
  float* sums;     // [chunk]
};

// Queries [first, end) to all packed keys, of which there is at least one. `rows` says where
// everything lies:
//   query(i), out(i)                where row i is read and written
//   begin_scores(i, scores, padded) what is added to the products; kNoScore behind the last key
//   end_scores(scores)              takes masked keys out
//   keep_weights(i, scores, factor) factor times the scores are the weights
template <typename Rows>
HWY_NOINLINE void AttendQueries(const AttentionScratch& s, int64_t first, int64_t end, float scale,
                                const Rows& rows) {
  const int64_t padded = s.keys.matrix.columns;
  const int64_t out_stride = s.values.matrix.columns;
  for (; first < end; first += s.chunk) {
    const int64_t count = std::min(s.chunk, end - first);
    for (int64_t r = 0; r < count; ++r) {
      const float* HWY_RESTRICT query = rows.query(first + r);
      float* HWY_RESTRICT to = s.queries + r * s.dim;
      for (int64_t c = 0; c < s.dim; ++c) to[c] = query[c] * scale;
      rows.begin_scores(first + r, s.scores + r * padded, padded);
    }
    Gemm(s.scores, padded, s.queries, s.dim, count, s.keys.matrix, {s.scores, padded});
    for (int64_t r = 0; r < count; ++r) {
      rows.end_scores(s.scores + r * padded);
      s.sums[r] = Exponentiate(s.scores + r * padded, padded);
    }
    Gemm(s.out, out_stride, s.scores, padded, count, s.values.matrix);
    for (int64_t r = 0; r < count; ++r) {
      const float factor = s.sums[r] == 0.0f ? 0.0f : 1.0f / s.sums[r];
      float* HWY_RESTRICT to = rows.out(first + r);
      for (int64_t c = 0; c < s.dim; ++c) to[c] = s.out[r * out_stride + c] * factor;
      rows.keep_weights(first + r, s.scores + r * padded, factor);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_ATTENTION_INL_H_
