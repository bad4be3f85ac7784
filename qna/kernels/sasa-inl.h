// Stand-alone self-attention for some windows side by side, in both directions.
//
// Heads are the fast index (see packed_layout.h), so that a vector of the query times a vector of a
// key is one dimension's part of the scores of all heads: no horizontal sums. The scores, one
// vector for every tap and window, stay in a small buffer between three loops over the taps:
//   Dots          cell[t] = <own, pixel[t]>            scores from q and k, g from dout and v
//   WeightedSum   own = sum_t cell[t] pixel[t]         out from p and v, dq from ds and k
//   Scatter       pixel[t] += cell[t] own              dk from ds and q, dv from p and dout
// where `own` belongs to a window, `pixel[t]` lies under its tap t.

#if defined(QNA_KERNELS_SASA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_SASA_INL_H_
#undef QNA_KERNELS_SASA_INL_H_
#else
#define QNA_KERNELS_SASA_INL_H_
#endif

#include "qna/kernels/exp-inl.h"
#include "qna/kernels/sasa.h"
#include "qna/kernels/scratch.h"
#include "qna/kernels/window_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// Windows side by side that are done together: they share what is in the first-level cache, and
// Scatter reads and writes a pixel that several of them see once.
constexpr int kSasaWindows = 4;

// Everything about a problem that a row of windows needs.
struct SasaPlan {
  const WindowShape& shape;
  const PackedLayout& layout;
  const float* bias;  // [taps][score_floats]; 0 in lanes that repeat a score
};

// bias [taps, heads] or null, in the order of the packed scores.
inline void PackBias(const float* bias, const WindowShape& shape, const PackedLayout& layout,
                     float* packed) {
  const std::vector<int32_t> sources = layout.first_score_sources();
  for (int64_t t = 0; t < shape.taps(); ++t)
    for (const int32_t source : sources) {
      *packed++ = bias == nullptr || source < 0 ? 0.0f : bias[t * shape.heads + source];
    }
}

// The packed input rows under one output row, from the first valid tap row on.
struct SasaRows {
  const float* const* keys;      // each: [columns][value_floats], 0 where masked
  const float* const* values;    // each: [columns][value_floats], 0 where masked
  const uint8_t* const* masked;  // each: [columns], 0 is masked; or null
  int64_t first;                 // tap row of keys[0]
  int64_t count;
};

// Scratch of a tile, each [taps][kSasaWindows][lanes] at most.
struct SasaCells {
  static SasaCells carve(ScratchArena& arena, const WindowShape& s, bool backward) {
    const int64_t floats = s.taps() * kSasaWindows * Lanes();
    return {arena.take<float>(floats), backward ? arena.take<float>(floats) : nullptr,
            arena.take<float>(kSasaWindows * Lanes())};
  }
  float* scores;   // later exp(score - maximum), in the backward pass then p
  float* g;        // <dout, v>, later ds; only in the backward pass
  float* inverse;  // [kSasaWindows][lanes]: 1 / sum of the exponentials
};

// kWindows windows side by side, all with the same taps, and one head group.
//
// Vector stores may alias anything in the compiler's eyes, so what the inner loops need is copied
// into locals first.
template <int kWindows>
struct SasaTile {
  const SasaPlan& plan;
  const SasaRows& rows;
  const HeadGroup& group;
  const TapColumns columns;  // of the first window
  const SasaCells& cells;

  // From one tap's cells to the next.
  static constexpr int64_t step() {
    return kWindows * static_cast<int64_t>(hn::MaxLanes(FloatTag()));
  }
  int64_t taps() const { return rows.count * columns.count(); }
  int64_t tap_step() const { return plan.shape.dilation_w * plan.layout.value_floats; }
  int64_t window_step() const { return plan.shape.stride_w * plan.layout.value_floats; }
  // Of vector v of the first window's first valid tap, in a row of pixels.
  int64_t offset(int64_t v) const {
    return (columns.start + columns.range.begin * plan.shape.dilation_w) *
               plan.layout.value_floats +
           group.value_offset + v * Lanes();
  }
  const float* bias_row(int64_t y) const {
    const int64_t tap = (rows.first + y) * plan.shape.kernel_w + columns.range.begin;
    return plan.bias + tap * plan.layout.score_floats + group.score_offset;
  }

  // Calls run(vectors as a constant, first vector) until all vectors of a pixel are done.
  template <typename Run>
  HWY_INLINE void EachChunk(const Run& run) const {
    int64_t v = 0;
    for (; v + 8 <= group.vectors; v += 8) run(std::integral_constant<int, 8>(), v);
    for (; v + 4 <= group.vectors; v += 4) run(std::integral_constant<int, 4>(), v);
    for (; v + 2 <= group.vectors; v += 2) run(std::integral_constant<int, 2>(), v);
    for (; v < group.vectors; ++v) run(std::integral_constant<int, 1>(), v);
  }

  // What a product starts from.
  enum class Start { kZero, kBias, kCells };

  // out (+)= <own, pixel> over kVectors vectors from v on, with a sum for each lane.
  template <int kVectors, Start kStart>
  HWY_NOINLINE void DotsOf(const float* const* pixels, const float* HWY_RESTRICT own, int64_t v,
                           float* HWY_RESTRICT out) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t row_count = rows.count;
    const int64_t count = columns.count();
    const int64_t pixel_step = tap_step();
    const int64_t bias_step = plan.layout.score_floats;
    for (int w = 0; w < kWindows; ++w) {
      FloatVector factor[kVectors];
      for (int i = 0; i < kVectors; ++i) {
        factor[i] = hn::Load(d, own + w * plan.layout.value_floats + (v + i) * lanes);
      }
      float* HWY_RESTRICT cell = out + w * lanes;
      for (int64_t y = 0; y < row_count; ++y) {
        const float* HWY_RESTRICT pixel = pixels[y] + offset(v) + w * window_step();
        const float* HWY_RESTRICT bias = bias_row(y);
        for (int64_t x = 0; x < count; ++x) {
          FloatVector even = hn::Zero(d);
          if (kStart == Start::kBias) even = hn::Load(d, bias);
          if (kStart == Start::kCells) even = hn::Load(d, cell);
          FloatVector odd = hn::Zero(d);  // two chains, so that they do not wait for each other
          for (int i = 0; i < kVectors; ++i) {
            FloatVector& sum = i % 2 == 0 ? even : odd;
            sum = hn::MulAdd(factor[i], hn::Load(d, pixel + i * lanes), sum);
          }
          hn::Store(kVectors > 1 ? hn::Add(even, odd) : even, d, cell);
          pixel += pixel_step;
          bias += bias_step;
          cell += step();
        }
      }
    }
  }

  // out = <own, pixel>, plus the bias if kStart says so, complete in every lane.
  template <Start kStart>
  HWY_INLINE void Dots(const float* const* pixels, const float* own, float* out) const {
    EachChunk([&](auto vectors, int64_t v) HWY_ATTR {
      if (v == 0) {
        DotsOf<vectors.value, kStart>(pixels, own, v, out);
      } else {
        DotsOf<vectors.value, Start::kCells>(pixels, own, v, out);
      }
    });
    SumReplicas(out, taps(), step(), kWindows, group.slots);
  }

  // own (from v on, kVectors vectors) = sum over the taps of cell * pixel, times `factor`
  // [kWindows][lanes] if that is not null.
  template <int kVectors>
  HWY_NOINLINE void WeightedSumOf(const float* const* pixels, const float* HWY_RESTRICT in,
                                  const float* HWY_RESTRICT factor, int64_t v,
                                  float* HWY_RESTRICT own) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t row_count = rows.count;
    const int64_t count = columns.count();
    const int64_t pixel_step = tap_step();
    for (int w = 0; w < kWindows; ++w) {
      FloatVector sums[kVectors];
      for (int i = 0; i < kVectors; ++i) sums[i] = hn::Zero(d);
      const float* HWY_RESTRICT cell = in + w * lanes;
      for (int64_t y = 0; y < row_count; ++y) {
        const float* HWY_RESTRICT pixel = pixels[y] + offset(v) + w * window_step();
        for (int64_t x = 0; x < count; ++x) {
          const FloatVector weight = hn::Load(d, cell);
          for (int i = 0; i < kVectors; ++i) {
            sums[i] = hn::MulAdd(weight, hn::Load(d, pixel + i * lanes), sums[i]);
          }
          pixel += pixel_step;
          cell += step();
        }
      }
      const FloatVector scale =
          factor == nullptr ? hn::Set(d, 1.0f) : hn::Load(d, factor + w * lanes);
      for (int i = 0; i < kVectors; ++i) {
        hn::Store(hn::Mul(sums[i], scale), d, own + w * plan.layout.value_floats + (v + i) * lanes);
      }
    }
  }
  HWY_INLINE void WeightedSum(const float* const* pixels, const float* in, const float* factor,
                              float* own) const {
    EachChunk([&](auto vectors, int64_t v)
                  HWY_ATTR { WeightedSumOf<vectors.value>(pixels, in, factor, v, own); });
  }

  // pixel += cell * own, over kVectors vectors from v on. More than one window means dilation 1:
  // then tap x of window w lies in column x + w * stride, and a column is done once for all
  // windows.
  template <int kVectors>
  HWY_NOINLINE void ScatterOf(float* const* pixels, const float* HWY_RESTRICT in,
                              const float* HWY_RESTRICT own, int64_t v) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t row_count = rows.count;
    const int64_t count = columns.count();
    const int64_t stride = plan.shape.stride_w;
    const int64_t column_count = count + (kWindows - 1) * stride;
    const int64_t pixel_step = tap_step();
    const int64_t own_step = plan.layout.value_floats;
    const int64_t cell_window_step = lanes - stride * step();
    const float* HWY_RESTRICT first_own = own + v * lanes;
    for (int64_t y = 0; y < row_count; ++y) {
      float* HWY_RESTRICT pixel = pixels[y] + offset(v);
      const float* HWY_RESTRICT row = in + y * count * step();
      for (int64_t x = 0; x < column_count; ++x, pixel += pixel_step) {
        int64_t first = 0;  // the windows [first, end) see this column
        int64_t end = 1;
        if (kWindows > 1) {
          first = x < count ? 0 : (x - count) / stride + 1;
          end = std::min<int64_t>(kWindows, x / stride + 1);
        }
        if (first >= end) continue;
        const float* HWY_RESTRICT cell = row + x * step() + first * cell_window_step;
        const float* HWY_RESTRICT window = first_own + first * own_step;
        FloatVector sums[kVectors];
        for (int i = 0; i < kVectors; ++i) sums[i] = hn::Load(d, pixel + i * lanes);
        for (int64_t w = first; w < end; ++w) {
          const FloatVector weight = hn::Load(d, cell);
          for (int i = 0; i < kVectors; ++i) {
            sums[i] = hn::MulAdd(weight, hn::Load(d, window + i * lanes), sums[i]);
          }
          cell += cell_window_step;
          window += own_step;
        }
        for (int i = 0; i < kVectors; ++i) hn::Store(sums[i], d, pixel + i * lanes);
      }
    }
  }
  HWY_INLINE void Scatter(float* const* pixels, const float* in, const float* own) const {
    EachChunk([&](auto vectors, int64_t v)
                  HWY_ATTR { ScatterOf<vectors.value>(pixels, in, own, v); });
  }

  // A masked tap has no score.
  void MaskScores() const {
    const FloatTag d;
    for (int64_t y = 0; y < rows.count; ++y)
      for (int64_t x = 0; x < columns.count(); ++x)
        for (int64_t w = 0; w < kWindows; ++w) {
          const int64_t column = columns.start + (columns.range.begin + x) * plan.shape.dilation_w +
                                 w * plan.shape.stride_w;
          if (rows.masked[y][column] != 0) continue;
          float* cell = cells.scores + (y * columns.count() + x) * step() + w * Lanes();
          hn::Store(hn::Set(d, kMinusInfinity), d, cell);
        }
  }

  // scores -> exp(score - the window's maximum), and 1 / their sums: 0 where there is no score.
  HWY_NOINLINE void Exponentiate() const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t count = taps();
    const FloatVector nothing = hn::Set(d, kMinusInfinity);
    FloatVector maximum[kWindows];
    FloatVector sum[kWindows];
    for (int w = 0; w < kWindows; ++w) {
      maximum[w] = nothing;
      sum[w] = hn::Zero(d);
    }
    float* HWY_RESTRICT scores = cells.scores;
    for (int64_t t = 0; t < count; ++t)
      for (int w = 0; w < kWindows; ++w) {
        maximum[w] = hn::Max(maximum[w], hn::Load(d, scores + t * step() + w * lanes));
      }
    for (int w = 0; w < kWindows; ++w) {
      maximum[w] = hn::IfThenZeroElse(hn::Eq(maximum[w], nothing), maximum[w]);
    }
    const FloatVector log2e = hn::Set(d, kLog2E);
    for (int64_t t = 0; t < count; ++t)
      for (int w = 0; w < kWindows; ++w) {
        float* HWY_RESTRICT cell = scores + t * step() + w * lanes;
        // The difference first: that of near numbers is exact.
        const FloatVector e = Exp2Below(hn::Mul(hn::Sub(hn::Load(d, cell), maximum[w]), log2e));
        sum[w] = hn::Add(sum[w], e);
        hn::Store(e, d, cell);
      }
    for (int w = 0; w < kWindows; ++w) {
      const FloatVector inverse = hn::Div(hn::Set(d, 1.0f), sum[w]);
      hn::Store(hn::IfThenZeroElse(hn::Eq(sum[w], hn::Zero(d)), inverse), d,
                cells.inverse + w * lanes);
    }
  }

  // The exponentials of all taps from the queries of the windows, value_floats apart.
  HWY_INLINE void Attention(const float* q) const {
    Dots<Start::kBias>(rows.keys, q, cells.scores);
    if (rows.masked != nullptr) MaskScores();
    Exponentiate();
  }

  HWY_INLINE void Forward(const float* q, float* out) const {
    Attention(q);
    WeightedSum(rows.values, cells.scores, cells.inverse, out);
  }

  // p in place of the exponentials, ds = p (g - sum_t p g) in place of g, dbias += ds.
  HWY_NOINLINE void ScoreGradients(float* HWY_RESTRICT grad_bias) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t row_count = rows.count;
    const int64_t count = columns.count();
    const int64_t bias_step = plan.layout.score_floats;
    float* HWY_RESTRICT p = cells.scores;
    float* HWY_RESTRICT g = cells.g;
    FloatVector inverse[kWindows];
    FloatVector mean[kWindows];
    for (int w = 0; w < kWindows; ++w) {
      inverse[w] = hn::Load(d, cells.inverse + w * lanes);
      mean[w] = hn::Zero(d);
    }
    for (int64_t i = 0; i < row_count * count * step(); i += step())
      for (int w = 0; w < kWindows; ++w) {
        const FloatVector weight = hn::Mul(hn::Load(d, p + i + w * lanes), inverse[w]);
        mean[w] = hn::MulAdd(weight, hn::Load(d, g + i + w * lanes), mean[w]);
        hn::Store(weight, d, p + i + w * lanes);
      }
    for (int64_t y = 0; y < row_count; ++y) {
      float* HWY_RESTRICT bias = grad_bias + (bias_row(y) - plan.bias);
      for (int64_t x = 0; x < count; ++x) {
        FloatVector sum = hn::Load(d, bias);
        for (int w = 0; w < kWindows; ++w) {
          const FloatVector ds =
              hn::Mul(hn::Load(d, p + w * lanes), hn::Sub(hn::Load(d, g + w * lanes), mean[w]));
          sum = hn::Add(sum, ds);
          hn::Store(ds, d, g + w * lanes);
        }
        hn::Store(sum, d, bias);
        bias += bias_step;
        p += step();
        g += step();
      }
    }
  }

  // grad_q is written; grad_keys, grad_values (rows like those of keys) and grad_bias are added to.
  HWY_INLINE void Backward(const float* q, const float* grad_out, float* grad_q,
                           float* const* grad_keys, float* const* grad_values,
                           float* grad_bias) const {
    Attention(q);
    Dots<Start::kZero>(rows.values, grad_out, cells.g);
    ScoreGradients(grad_bias);
    WeightedSum(rows.keys, cells.g, nullptr, grad_q);
    Scatter(grad_keys, cells.g, q);
    Scatter(grad_values, cells.scores, grad_out);
  }
};

// Calls run(tile, j) for windows [begin, end) of an output row, kSasaWindows at a time where they
// have all taps. `origin` is the input column at which the rows' pointers start, `width` how many
// columns they hold.
template <typename Run>
HWY_INLINE void ForEachTile(const SasaPlan& plan, const SasaRows& rows, const SasaCells& cells,
                            int64_t begin, int64_t end, int64_t origin, int64_t width,
                            const Run& run) {
  const WindowShape& s = plan.shape;
  const auto columns_at = [&](int64_t j) {
    const int64_t start = j * s.stride_w - s.pad_left - origin;
    const TapRange range = valid_taps(start, s.kernel_w, s.dilation_w, width);
    return range.begin < range.end ? TapColumns{start, range} : TapColumns{0, {0, 0}};
  };
  for (const HeadGroup& group : plan.layout.groups) {
    for (int64_t j = begin; j < end;) {
      const TapColumns columns = columns_at(j);
      const int64_t last = j + kSasaWindows - 1;
      if (s.dilation_w == 1 && columns.count() == s.kernel_w && last < end &&
          columns_at(last).count() == s.kernel_w) {
        run(SasaTile<kSasaWindows>{plan, rows, group, columns, cells}, j);
        j += kSasaWindows;
      } else {
        run(SasaTile<1>{plan, rows, group, columns, cells}, j);
        ++j;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_SASA_INL_H_
