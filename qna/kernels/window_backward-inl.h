// One row of windows, backward. The weights are computed again from the exponentials; nothing of
// size taps x pixels is ever kept. With g[t] = <dz, value[n(t)]> per head:
//   dp[l, t] = w g,  ds = p (dp - sum_t p dp),  db += ds,  dw += p g,  dvalue[n(t)] += (sum_l w p) dz

#if defined(QNA_KERNELS_WINDOW_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_WINDOW_BACKWARD_INL_H_
#undef QNA_KERNELS_WINDOW_BACKWARD_INL_H_
#else
#define QNA_KERNELS_WINDOW_BACKWARD_INL_H_
#endif

#include <type_traits>

#include "qna/kernels/window_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// Windows side by side that are done together: they share the pass over the tables, and a pixel that
// several of them see is read and written once.
constexpr int kBackwardTile = 4;

// Where the gradients of one row of windows are added.
struct GradRows {
  float* const* records;  // like TapRows::records: [columns][values | scores]
  float* bias;            // [taps][score_floats]
  float* weight;          // [taps][score_floats]
};

// Per tile, with index = row * tap columns + column over the taps that take part.
struct BackwardScratch {
  static int64_t floats(const WindowShape& shape) {
    return kBackwardTile * (2 * shape.queries + shape.taps() * (shape.queries + 2)) * Lanes();
  }
  BackwardScratch(const WindowShape& shape, float* memory)
      : inverse(memory),
        mean(inverse + kBackwardTile * shape.queries * Lanes()),
        p(mean + kBackwardTile * shape.queries * Lanes()),
        g(p + kBackwardTile * shape.taps() * shape.queries * Lanes()),
        fold(g + kBackwardTile * shape.taps() * Lanes()) {}
  float* inverse;  // [queries][windows][lanes]: 1 / sum
  float* mean;     // [queries][windows][lanes]: sum_t p dp
  float* p;        // [index][queries][windows][lanes]; later ds
  float* g;        // [index][windows][lanes]
  float* fold;     // [index][windows][lanes]: sum_l w p
};

// kWindows windows side by side, all with the same taps, and one head group.
template <int kWindows>
struct BackwardTile {
  const WindowPlan& plan;
  const TapRows& rows;
  const GradRows& grads;
  const HeadGroup& group;
  const TapColumns columns;
  const BackwardScratch& scratch;
  uint32_t distrusted = 0;  // a bit per window whose p came from ExactAttention

  int64_t first_tap(int64_t y) const {
    return (rows.first + y) * plan.shape.kernel_w + columns.range.begin;
  }
  // Column of the first valid tap.
  int64_t first_column() const {
    return columns.start + columns.range.begin * plan.shape.dilation_w;
  }
  static int64_t step() { return kWindows * Lanes(); }

  // 1 / sums of all queries; p of the windows that need their own maximum.
  HWY_INLINE void Prepare() {
    const int64_t queries = plan.shape.queries;
    int64_t l = 0;
    for (; l + 2 <= queries; l += 2) StoreInverseSums<2>(l);
    if (l < queries) StoreInverseSums<1>(l);
    if (HWY_LIKELY(distrusted == 0)) return;
    for (int w = 0; w < kWindows; ++w) {
      if ((distrusted >> w & 1) == 0) continue;
      const TapColumns window{columns.start + w * plan.shape.stride_w, columns.range};
      for (l = 0; l < queries; ++l) {
        ExactAttention(plan, rows, window, group, l, scratch.p + l * step() + w * Lanes(),
                       queries * step());
      }
    }
  }

  template <int kQueries>
  HWY_INLINE void StoreInverseSums(int64_t query) {
    FloatVector inverse[kWindows][kQueries];
    distrusted |= InverseSums(plan, rows, columns, group, query, inverse);
    for (int l = 0; l < kQueries; ++l)
      for (int w = 0; w < kWindows; ++w) {
        hn::Store(inverse[w][l], FloatTag(),
                  scratch.inverse + (query + l) * step() + w * Lanes());
      }
  }

  // g (+)= <dz, value> over kVectors vectors from `v` on.
  template <int kVectors, bool kAdd>
  HWY_INLINE void Dots(const float* HWY_RESTRICT dz, int64_t v) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t record = plan.layout.record();
    for (int w = 0; w < kWindows; ++w) {
      const float* HWY_RESTRICT window_dz = dz + w * plan.layout.value_floats + v * lanes;
      FloatVector z[kVectors];
      for (int i = 0; i < kVectors; ++i) z[i] = hn::Load(d, window_dz + i * lanes);
      float* HWY_RESTRICT g = scratch.g + w * lanes;
      for (int64_t y = 0; y < rows.count; ++y) {
        const float* HWY_RESTRICT value =
            rows.records[y] + (first_column() + w * plan.shape.stride_w) * record +
            group.value_offset + v * lanes;
        for (int64_t x = 0; x < columns.count(); ++x) {
          FloatVector even = hn::Mul(z[0], hn::Load(d, value));
          FloatVector odd = hn::Zero(d);
          for (int i = 1; i < kVectors; ++i) {
            FloatVector& sum = i % 2 == 0 ? even : odd;
            sum = hn::MulAdd(z[i], hn::Load(d, value + i * lanes), sum);
          }
          if (kVectors > 1) even = hn::Add(even, odd);
          if (kAdd) even = hn::Add(even, hn::Load(d, g));
          hn::Store(even, d, g);
          g += step();
          value += plan.shape.dilation_w * record;
        }
      }
    }
  }

  // Where a head stands in several lanes, each holds part of its dimensions' sum: add them up.
  HWY_INLINE void SumReplicas() const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    for (int64_t distance = group.slots; distance < lanes; distance *= 2) {
      HWY_ALIGN int32_t other[HWY_MAX_BYTES / sizeof(int32_t)];
      for (int64_t lane = 0; lane < lanes; ++lane) {
        other[lane] = static_cast<int32_t>(lane ^ distance);
      }
      const auto indices = hn::SetTableIndices(d, other);
      for (int64_t i = 0; i < rows.count * columns.count() * step(); i += lanes) {
        const FloatVector g = hn::Load(d, scratch.g + i);
        hn::Store(hn::Add(g, hn::TableLookupLanes(g, indices)), d, scratch.g + i);
      }
    }
  }

  // p, mean and fold of kQueries queries. kExact: some p are there already.
  template <int kQueries, bool kExact, bool kAdd>
  HWY_INLINE void Fold(int64_t query) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t score_floats = plan.layout.score_floats;
    const int64_t offset = group.score_offset + query * lanes;
    FloatVector mean[kQueries][kWindows];
    for (int l = 0; l < kQueries; ++l)
      for (int w = 0; w < kWindows; ++w) mean[l][w] = hn::Zero(d);
    const float* HWY_RESTRICT inverse = scratch.inverse + query * step();
    float* HWY_RESTRICT p = scratch.p + query * step();
    const float* HWY_RESTRICT g = scratch.g;
    float* HWY_RESTRICT fold = scratch.fold;
    for (int64_t y = 0; y < rows.count; ++y) {
      const float* HWY_RESTRICT e = rows.exps[y] + first_column() * score_floats + offset;
      const float* HWY_RESTRICT b = plan.tables.exp_bias + first_tap(y) * score_floats + offset;
      const float* HWY_RESTRICT weight = plan.tables.weight + first_tap(y) * score_floats + offset;
      for (int64_t x = 0; x < columns.count(); ++x) {
        for (int w = 0; w < kWindows; ++w) {
          const FloatVector window_g = hn::Load(d, g + w * lanes);
          FloatVector sum = kAdd ? hn::Load(d, fold + w * lanes) : hn::Zero(d);
          for (int l = 0; l < kQueries; ++l) {
            float* HWY_RESTRICT cell = p + l * step() + w * lanes;
            FloatVector probability;
            if (kExact && (distrusted >> w & 1) != 0) {
              probability = hn::Load(d, cell);
            } else {
              const float* score_e = e + w * plan.shape.stride_w * score_floats + l * lanes;
              probability = hn::Mul(hn::Mul(hn::Load(d, score_e),
                                            hn::Load(d, inverse + l * step() + w * lanes)),
                                    hn::Load(d, b + l * lanes));
              hn::Store(probability, d, cell);
            }
            const FloatVector wp = hn::Mul(probability, hn::Load(d, weight + l * lanes));
            mean[l][w] = hn::MulAdd(wp, window_g, mean[l][w]);
            sum = hn::Add(sum, wp);
          }
          hn::Store(sum, d, fold + w * lanes);
        }
        e += plan.shape.dilation_w * score_floats;
        b += score_floats;
        weight += score_floats;
        p += plan.shape.queries * step();
        g += step();
        fold += step();
      }
    }
    for (int l = 0; l < kQueries; ++l)
      for (int w = 0; w < kWindows; ++w) {
        hn::Store(mean[l][w], d, scratch.mean + (query + l) * step() + w * lanes);
      }
  }

  // ds, in place of p, and the gradients of bias and tap weights.
  HWY_INLINE void ScoreGradients(int64_t query) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t score_floats = plan.layout.score_floats;
    const int64_t offset = group.score_offset + query * lanes;
    FloatVector mean[kWindows];
    for (int w = 0; w < kWindows; ++w) {
      mean[w] = hn::Load(d, scratch.mean + query * step() + w * lanes);
    }
    float* HWY_RESTRICT p = scratch.p + query * step();
    const float* HWY_RESTRICT g = scratch.g;
    for (int64_t y = 0; y < rows.count; ++y) {
      const int64_t first = first_tap(y) * score_floats + offset;
      const float* HWY_RESTRICT weight = plan.tables.weight + first;
      float* HWY_RESTRICT grad_bias = grads.bias + first;
      float* HWY_RESTRICT grad_weight = grads.weight + first;
      for (int64_t x = 0; x < columns.count(); ++x) {
        const FloatVector tap_weight = hn::Load(d, weight);
        FloatVector bias_sum = hn::Load(d, grad_bias);
        FloatVector weight_sum = hn::Load(d, grad_weight);
        for (int w = 0; w < kWindows; ++w) {
          const FloatVector window_g = hn::Load(d, g + w * lanes);
          const FloatVector probability = hn::Load(d, p + w * lanes);
          const FloatVector ds =
              hn::Mul(probability, hn::MulSub(tap_weight, window_g, mean[w]));
          bias_sum = hn::Add(bias_sum, ds);
          weight_sum = hn::MulAdd(probability, window_g, weight_sum);
          hn::Store(ds, d, p + w * lanes);
        }
        hn::Store(bias_sum, d, grad_bias);
        hn::Store(weight_sum, d, grad_weight);
        weight += score_floats;
        grad_bias += score_floats;
        grad_weight += score_floats;
        p += plan.shape.queries * step();
        g += step();
      }
    }
  }

  // Visits every pixel under the tile's windows, by row and column: visit(y, column, first, last)
  // with the windows [first, last) that see it; window w by its tap column - w * stride.
  // More than one window means dilation 1 (see BackwardRow).
  template <typename Visit>
  HWY_INLINE void EachPixel(const Visit& visit) const {
    const int64_t stride = plan.shape.stride_w;
    const int64_t count = columns.count();
    const int64_t width = kWindows == 1 ? count : count + (kWindows - 1) * stride;
    for (int64_t y = 0; y < rows.count; ++y)
      for (int64_t x = 0; x < width; ++x) {
        if (kWindows == 1) {
          visit(y, x, 0, 1);
        } else {
          const int64_t first = x < count ? 0 : (x - count) / stride + 1;
          visit(y, x, first, std::min<int64_t>(kWindows, x / stride + 1));
        }
      }
  }

  HWY_INLINE void ScatterScores(int64_t query) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t count = columns.count();
    const int64_t tap_step = plan.shape.queries * step();
    const int64_t offset = plan.layout.value_floats + group.score_offset + query * lanes;
    const float* HWY_RESTRICT ds = scratch.p + query * step();
    EachPixel([&](int64_t y, int64_t x, int64_t first, int64_t last) HWY_ATTR {
      float* HWY_RESTRICT grad =
          grads.records[y] + (first_column() + x * plan.shape.dilation_w) * plan.layout.record() +
          offset;
      FloatVector sum = hn::Load(d, grad);
      for (int64_t w = first; w < last; ++w) {
        const int64_t index = y * count + x - w * plan.shape.stride_w;
        sum = hn::Add(sum, hn::Load(d, ds + index * tap_step + w * lanes));
      }
      hn::Store(sum, d, grad);
    });
  }

  // dvalue += fold * dz
  template <int kVectors>
  HWY_INLINE void ScatterValues(const float* HWY_RESTRICT dz, int64_t v) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t count = columns.count();
    EachPixel([&](int64_t y, int64_t x, int64_t first, int64_t last) HWY_ATTR {
      float* HWY_RESTRICT grad =
          grads.records[y] + (first_column() + x * plan.shape.dilation_w) * plan.layout.record() +
          group.value_offset + v * lanes;
      FloatVector sums[kVectors];
      for (int i = 0; i < kVectors; ++i) sums[i] = hn::Load(d, grad + i * lanes);
      for (int64_t w = first; w < last; ++w) {
        const int64_t index = y * count + x - w * plan.shape.stride_w;
        const FloatVector fold = hn::Load(d, scratch.fold + index * step() + w * lanes);
        const float* HWY_RESTRICT z = dz + w * plan.layout.value_floats + v * lanes;
        for (int i = 0; i < kVectors; ++i) {
          sums[i] = hn::MulAdd(fold, hn::Load(d, z + i * lanes), sums[i]);
        }
      }
      for (int i = 0; i < kVectors; ++i) hn::Store(sums[i], d, grad + i * lanes);
    });
  }

  // Calls run(vectors as a constant, first vector) over all value vectors.
  template <typename Run>
  HWY_INLINE void EachChunk(const Run& run) const {
    int64_t v = 0;
    for (; v + 8 <= group.vectors; v += 8) run(std::integral_constant<int, 8>(), v);
    for (; v + 4 <= group.vectors; v += 4) run(std::integral_constant<int, 4>(), v);
    for (; v < group.vectors; ++v) run(std::integral_constant<int, 1>(), v);
  }

  // Fold for queries [query, query + count), in pairs.
  template <bool kExact>
  HWY_INLINE void FoldAll(int64_t query, int64_t count) const {
    if (count == 1) return Fold<1, kExact, false>(query);
    Fold<2, kExact, false>(query);
    int64_t l = 2;
    for (; l + 2 <= count; l += 2) Fold<2, kExact, true>(query + l);
    if (l < count) Fold<1, kExact, true>(query + l);
  }

  // All that queries [query, query + count), which share the output gradient dz, contribute.
  HWY_INLINE void Gradients(int64_t query, int64_t count, const float* HWY_RESTRICT dz) const {
    EachChunk([&](auto vectors, int64_t v) HWY_ATTR {
      if (v == 0) {
        Dots<vectors.value, false>(dz, v);
      } else {
        Dots<vectors.value, true>(dz, v);
      }
    });
    SumReplicas();
    if (HWY_LIKELY(distrusted == 0)) {
      FoldAll<false>(query, count);
    } else {
      FoldAll<true>(query, count);
    }
    for (int64_t l = query; l < query + count; ++l) {
      ScoreGradients(l);
      ScatterScores(l);
    }
    EachChunk([&](auto vectors, int64_t v) HWY_ATTR { ScatterValues<vectors.value>(dz, v); });
  }

  HWY_INLINE void Run(const float* dz, int64_t dz_query_stride) {
    const int64_t queries = plan.shape.queries;
    Prepare();
    if (!plan.shape.separate) return Gradients(0, queries, dz);
    for (int64_t l = 0; l < queries; ++l) Gradients(l, 1, dz + l * dz_query_stride);
  }
};

// All windows of an output row. dz: [windows][value_floats], a plane for every query if separate,
// dz_query_stride apart.
inline HWY_NOINLINE void BackwardRow(const WindowPlan& plan, const TapRows& rows,
                                     const GradRows& grads, const float* dz,
                                     int64_t dz_query_stride, float* scratch_memory) {
  const WindowShape& s = plan.shape;
  const BackwardScratch scratch(s, scratch_memory);
  const auto columns_at = [&](int64_t j) {
    const int64_t start = j * s.stride_w - s.pad_left;
    return TapColumns{start, valid_taps(start, s.kernel_w, s.dilation_w, s.width)};
  };
  for (const HeadGroup& group : plan.layout.groups) {
    for (int64_t j = 0; j < s.out_width();) {
      const TapColumns columns = columns_at(j);
      const int64_t last = j + kBackwardTile - 1;
      const float* window_dz = dz + j * plan.layout.value_floats + group.value_offset;
      if (s.dilation_w == 1 && columns.count() == s.kernel_w && last < s.out_width() &&
          columns_at(last).count() == s.kernel_w) {
        BackwardTile<kBackwardTile> tile{plan, rows, grads, group, columns, scratch};
        tile.Run(window_dz, dz_query_stride);
        j += kBackwardTile;
      } else {
        BackwardTile<1> tile{plan, rows, grads, group, columns, scratch};
        tile.Run(window_dz, dz_query_stride);
        ++j;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_WINDOW_BACKWARD_INL_H_
