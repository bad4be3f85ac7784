// One row of windows, backward. The weights are computed again from the exponentials; nothing of
// size taps x pixels is ever kept. With g[t] = <dz, value[n(t)]> per head:
//   dp[l, t] = w g,  ds = p (dp - sum_t p dp),  db += ds,  dw += p g,  dvalue[n(t)] += (sum_l w p)
//   dz

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

// Windows side by side that are done together: they share the pass over the tables, and a pixel
// that several of them see is read and written once.
constexpr int kBackwardTile = 4;

// Value vectors done at a time where each needs two registers: its gradient and its z.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kMostWithZ = 8;
#else
constexpr int kMostWithZ = 4;
#endif

// Where the gradients of one row of windows are added.
struct GradRows {
  float* const* records;  // like TapRows::records: [columns][values | scores]
  float* bias;            // [taps][score_floats]
  float* weight;          // [taps][score_floats]
};

// Per tile. `index` counts the taps that take part, row by row; `cell` the columns under a full
// tile, row by row: tap x of window w lies in column x + w * stride.
struct BackwardScratch {
  static int64_t columns(const WindowShape& shape) {
    const bool has_tiles = shape.out_width() >= kBackwardTile;
    return shape.kernel_w + (has_tiles ? (kBackwardTile - 1) * shape.stride_w : 0);
  }
  static int64_t cells(const WindowShape& shape) { return shape.kernel_h * columns(shape); }
  // score_vectors: of a group at most.
  static int64_t floats(const WindowShape& shape, int64_t score_vectors) {
    return kBackwardTile * Lanes() *
               (score_vectors + cells(shape) * score_vectors + 2 * shape.taps()) +
           columns(shape);
  }
  // p must be zero where a window does not see a column; the cells that are used are the same for
  // all tiles.
  BackwardScratch(const WindowShape& shape, int64_t score_vectors, float* memory)
      : inverse(memory),
        p(inverse + kBackwardTile * score_vectors * Lanes()),
        g(p + kBackwardTile * cells(shape) * score_vectors * Lanes()),
        fold(g + kBackwardTile * shape.taps() * Lanes()),
        seen_by(reinterpret_cast<Windows*>(fold + kBackwardTile * shape.taps() * Lanes())) {
    std::fill(p, g, 0.0f);
    for (int64_t x = 0; x < columns(shape); ++x) {
      const int64_t first = x < shape.kernel_w ? 0 : (x - shape.kernel_w) / shape.stride_w + 1;
      const int64_t end = std::min<int64_t>(kBackwardTile, x / shape.stride_w + 1);
      seen_by[x] = {static_cast<int16_t>(first), static_cast<int16_t>(end)};
    }
  }
  // The windows [first, end) of a tile that see a column.
  struct Windows {
    int16_t first, end;
  };
  float* inverse;    // [score vectors][windows][lanes]: 1 / sum
  float* p;          // [cell][score vectors][windows][lanes]; later ds
  float* g;          // [index][windows][lanes]
  float* fold;       // [index][windows][lanes]: sum_l w p
  Windows* seen_by;  // [columns of a full tile]
};

// kWindows windows side by side, all with the same taps, and one head group.
//
// Vector stores may alias anything in the compiler's eyes, so what the inner loops need of the plan
// is copied into locals first.
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
  // From one cell or index to the next, for one vector of scores.
  static constexpr int64_t step() {
    return kBackwardTile * static_cast<int64_t>(hn::MaxLanes(FloatTag()));
  }
  int64_t cell_step() const { return plan.layout.most_score_vectors * step(); }
  int64_t cell_row_step() const { return BackwardScratch::columns(plan.shape) * cell_step(); }

  // 1 / sums of all vectors of scores; p of the windows that need their own maximum.
  HWY_INLINE void Prepare() {
    const int64_t queries = group.score_vectors;
    distrusted =
        StoreInverseSums<kWindows>(plan, rows, columns, group, 0, queries, scratch.inverse, step());
    if (HWY_LIKELY(distrusted == 0)) return;
    for (int w = 0; w < kWindows; ++w) {
      if ((distrusted >> w & 1) == 0) continue;
      const TapColumns window{columns.start + w * plan.shape.stride_w, columns.range};
      float* p = scratch.p + w * plan.shape.stride_w * cell_step() + w * Lanes();
      for (int64_t l = 0; l < queries; ++l) {
        ExactAttention(plan, rows, window, group, l, p + l * step(), cell_step(), cell_row_step());
      }
    }
  }

  // g (+)= <dz, value> over kVectors vectors from `v` on; kWithZ: also z = sum of fold * value,
  // which needs the same values.
  template <int kVectors, bool kAdd, bool kWithZ>
  HWY_NOINLINE void Dots(const float* HWY_RESTRICT dz, int64_t v, float* HWY_RESTRICT z_out) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t count = columns.count();
    const int64_t row_count = rows.count;
    const int64_t tap_step = plan.shape.dilation_w * plan.layout.record();
    for (int w = 0; w < kWindows; ++w) {
      const float* HWY_RESTRICT window_dz = dz + w * plan.layout.value_floats + v * lanes;
      const int64_t offset = (first_column() + w * plan.shape.stride_w) * plan.layout.record() +
                             group.value_offset + v * lanes;
      float* HWY_RESTRICT g = scratch.g + w * lanes;
      const float* HWY_RESTRICT fold = scratch.fold + w * lanes;
      FloatVector grad[kVectors];
      FloatVector z[kVectors];
      for (int i = 0; i < kVectors; ++i) {
        grad[i] = hn::Load(d, window_dz + i * lanes);
        z[i] = hn::Zero(d);
      }
      for (int64_t y = 0; y < row_count; ++y) {
        const float* HWY_RESTRICT value = rows.records[y] + offset;
        for (int64_t x = 0; x < count; ++x) {
          const FloatVector weight = kWithZ ? hn::Load(d, fold) : hn::Zero(d);
          FloatVector even = kAdd ? hn::Load(d, g) : hn::Zero(d);
          FloatVector odd = hn::Zero(d);
          for (int i = 0; i < kVectors; ++i) {
            const FloatVector element = hn::Load(d, value + i * lanes);
            FloatVector& sum = i % 2 == 0 ? even : odd;
            sum = hn::MulAdd(element, grad[i], sum);
            if (kWithZ) z[i] = hn::MulAdd(weight, element, z[i]);
          }
          hn::Store(kVectors > 1 ? hn::Add(even, odd) : even, d, g);
          g += step();
          fold += step();
          value += tap_step;
        }
      }
      for (int i = 0; kWithZ && i < kVectors; ++i) {
        hn::Store(z[i], d, z_out + w * plan.layout.value_floats + (v + i) * lanes);
      }
    }
  }

  // p and fold of kQueries vectors of scores. kExact: some p are there already.
  template <int kQueries, bool kExact, bool kAdd>
  HWY_NOINLINE void Fold(int64_t query) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t count = columns.count();
    const int64_t row_count = rows.count;
    const int64_t score_floats = plan.layout.score_floats;
    const int64_t offset = group.score_offset + query * lanes;
    const int64_t tap_step = plan.shape.dilation_w * score_floats;
    const int64_t window_step = plan.shape.stride_w * score_floats;
    const int64_t p_step = cell_step();
    const int64_t p_window_step = plan.shape.stride_w * p_step + lanes;
    const uint32_t exact = distrusted;
    const float* HWY_RESTRICT inverse_memory = scratch.inverse + query * step();
    FloatVector inverse[kQueries][kWindows];
    for (int l = 0; l < kQueries; ++l)
      for (int w = 0; w < kWindows; ++w) {
        inverse[l][w] = hn::Load(d, inverse_memory + l * step() + w * lanes);
      }
    float* HWY_RESTRICT fold = scratch.fold;
    for (int64_t y = 0; y < row_count; ++y) {
      const float* HWY_RESTRICT e = rows.exps[y] + first_column() * score_floats + offset;
      const float* HWY_RESTRICT b = plan.tables.exp_bias + first_tap(y) * score_floats + offset;
      const float* HWY_RESTRICT weight = plan.tables.weight + first_tap(y) * score_floats + offset;
      float* HWY_RESTRICT p = scratch.p + y * cell_row_step() + query * step();
      for (int64_t x = 0; x < count; ++x) {
        for (int w = 0; w < kWindows; ++w) {
          FloatVector sum = kAdd ? hn::Load(d, fold + w * lanes) : hn::Zero(d);
          for (int l = 0; l < kQueries; ++l) {
            float* HWY_RESTRICT cell = p + w * p_window_step + l * step();
            FloatVector probability;
            if (kExact && (exact >> w & 1) != 0) {
              probability = hn::Load(d, cell);
            } else {
              const FloatVector score_e = hn::Load(d, e + w * window_step + l * lanes);
              probability = hn::Mul(hn::Mul(score_e, inverse[l][w]), hn::Load(d, b + l * lanes));
              hn::Store(probability, d, cell);
            }
            const FloatVector wp = hn::Mul(probability, hn::Load(d, weight + l * lanes));
            sum = l == 0 && !kAdd ? wp : hn::Add(sum, wp);
          }
          hn::Store(sum, d, fold + w * lanes);
        }
        e += tap_step;
        b += score_floats;
        weight += score_floats;
        p += p_step;
        fold += step();
      }
    }
  }

  // sum_t p dp of every window.
  HWY_INLINE void Means(int64_t query, FloatVector (&mean)[kWindows]) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t count = columns.count();
    const int64_t score_floats = plan.layout.score_floats;
    const int64_t p_step = cell_step();
    const int64_t p_window_step = plan.shape.stride_w * p_step + lanes;
    const float* HWY_RESTRICT g = scratch.g;
    for (int w = 0; w < kWindows; ++w) mean[w] = hn::Zero(d);
    for (int64_t y = 0; y < rows.count; ++y) {
      const float* HWY_RESTRICT weight =
          plan.tables.weight + first_tap(y) * score_floats + group.score_offset + query * lanes;
      const float* HWY_RESTRICT p = scratch.p + y * cell_row_step() + query * step();
      for (int64_t x = 0; x < count; ++x) {
        const FloatVector tap_weight = hn::Load(d, weight);
        for (int w = 0; w < kWindows; ++w) {
          const FloatVector wp = hn::Mul(tap_weight, hn::Load(d, p + w * p_window_step));
          mean[w] = hn::MulAdd(wp, hn::Load(d, g + w * lanes), mean[w]);
        }
        weight += score_floats;
        p += p_step;
        g += step();
      }
    }
  }

  // ds, in place of p, and the gradients of bias and tap weights.
  HWY_NOINLINE void ScoreGradients(int64_t query) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t count = columns.count();
    const int64_t row_count = rows.count;
    const int64_t score_floats = plan.layout.score_floats;
    const int64_t offset = group.score_offset + query * lanes;
    const int64_t p_step = cell_step();
    const int64_t p_window_step = plan.shape.stride_w * p_step + lanes;
    FloatVector mean[kWindows];
    Means(query, mean);
    const float* HWY_RESTRICT g = scratch.g;
    for (int64_t y = 0; y < row_count; ++y) {
      const int64_t first = first_tap(y) * score_floats + offset;
      const float* HWY_RESTRICT weight = plan.tables.weight + first;
      float* HWY_RESTRICT grad_bias = grads.bias + first;
      float* HWY_RESTRICT grad_weight = grads.weight + first;
      float* HWY_RESTRICT p = scratch.p + y * cell_row_step() + query * step();
      for (int64_t x = 0; x < count; ++x) {
        const FloatVector tap_weight = hn::Load(d, weight);
        FloatVector bias_sum = hn::Load(d, grad_bias);
        FloatVector weight_sum = hn::Load(d, grad_weight);
        for (int w = 0; w < kWindows; ++w) {
          float* HWY_RESTRICT cell = p + w * p_window_step;
          const FloatVector window_g = hn::Load(d, g + w * lanes);
          const FloatVector probability = hn::Load(d, cell);
          const FloatVector ds = hn::Mul(probability, hn::MulSub(tap_weight, window_g, mean[w]));
          bias_sum = hn::Add(bias_sum, ds);
          weight_sum = hn::MulAdd(probability, window_g, weight_sum);
          hn::Store(ds, d, cell);
        }
        hn::Store(bias_sum, d, grad_bias);
        hn::Store(weight_sum, d, grad_weight);
        weight += score_floats;
        grad_bias += score_floats;
        grad_weight += score_floats;
        p += p_step;
        g += step();
      }
    }
  }

  // Columns under the tile's windows. More than one window means dilation 1 (see BackwardRow).
  int64_t width() const {
    return kWindows == 1 ? columns.count() : BackwardScratch::columns(plan.shape);
  }

  // dscore += ds of all windows; where one does not see the column its ds is 0.
  HWY_NOINLINE void ScatterScores(int64_t query) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t row_count = rows.count;
    const int64_t column_count = width();
    const int64_t ds_step = cell_step();
    const int64_t pixel_step = plan.shape.dilation_w * plan.layout.record();
    const int64_t offset = first_column() * plan.layout.record() + plan.layout.value_floats +
                           group.score_offset + query * lanes;
    for (int64_t y = 0; y < row_count; ++y) {
      float* HWY_RESTRICT grad = grads.records[y] + offset;
      const float* HWY_RESTRICT ds = scratch.p + y * cell_row_step() + query * step();
      for (int64_t x = 0; x < column_count; ++x) {
        FloatVector sum = hn::Load(d, ds);
        for (int w = 1; w < kWindows; ++w) sum = hn::Add(sum, hn::Load(d, ds + w * lanes));
        hn::Store(hn::Add(hn::Load(d, grad), sum), d, grad);
        grad += pixel_step;
        ds += ds_step;
      }
    }
  }

  // dvalue += fold * dz
  template <int kVectors>
  HWY_NOINLINE void ScatterValues(const float* HWY_RESTRICT dz, int64_t v) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    const int64_t count = columns.count();
    const int64_t row_count = rows.count;
    const int64_t column_count = width();
    const int64_t pixel_step = plan.shape.dilation_w * plan.layout.record();
    const int64_t offset = first_column() * plan.layout.record() + group.value_offset + v * lanes;
    const int64_t dz_step = plan.layout.value_floats;
    const int64_t fold_window_step = lanes - plan.shape.stride_w * step();
    const BackwardScratch::Windows* HWY_RESTRICT seen_by = scratch.seen_by;
    const float* HWY_RESTRICT z_first = dz + v * lanes;
    for (int64_t y = 0; y < row_count; ++y) {
      float* HWY_RESTRICT grad = grads.records[y] + offset;
      const float* HWY_RESTRICT fold_row = scratch.fold + y * count * step();
      for (int64_t x = 0; x < column_count; ++x) {
        const int64_t first = kWindows == 1 ? 0 : seen_by[x].first;
        const int64_t end = kWindows == 1 ? 1 : seen_by[x].end;
        const float* HWY_RESTRICT fold = fold_row + x * step() + first * fold_window_step;
        const float* HWY_RESTRICT z = z_first + first * dz_step;
        FloatVector sums[kVectors];
        for (int i = 0; i < kVectors; ++i) sums[i] = hn::Load(d, grad + i * lanes);
        for (int64_t w = first; w < end; ++w) {
          const FloatVector weight = hn::Load(d, fold);
          for (int i = 0; i < kVectors; ++i) {
            sums[i] = hn::MulAdd(weight, hn::Load(d, z + i * lanes), sums[i]);
          }
          fold += fold_window_step;
          z += dz_step;
        }
        for (int i = 0; i < kVectors; ++i) hn::Store(sums[i], d, grad + i * lanes);
        grad += pixel_step;
      }
    }
  }

  // Calls run(vectors as a constant, first vector) over all value vectors, kMost at a time.
  template <int kMost, typename Run>
  HWY_INLINE void EachChunk(const Run& run) const {
    int64_t v = 0;
    for (; kMost >= 8 && v + 8 <= group.vectors; v += 8) run(std::integral_constant<int, 8>(), v);
    for (; v + 4 <= group.vectors; v += 4) run(std::integral_constant<int, 4>(), v);
    for (; v < group.vectors; ++v) run(std::integral_constant<int, 1>(), v);
  }

  // Fold for vectors of scores [query, query + count), in pairs.
  template <bool kExact>
  HWY_INLINE void FoldAll(int64_t query, int64_t count) const {
    if (count == 1) return Fold<1, kExact, false>(query);
    Fold<2, kExact, false>(query);
    int64_t l = 2;
    for (; l + 2 <= count; l += 2) Fold<2, kExact, true>(query + l);
    if (l < count) Fold<1, kExact, true>(query + l);
  }

  // All that vectors of scores [query, query + count), which share the output gradient dz,
  // contribute.
  HWY_INLINE void Gradients(int64_t query, int64_t count, const float* HWY_RESTRICT dz,
                            float* HWY_RESTRICT z) const {
    if (HWY_LIKELY(distrusted == 0)) {
      FoldAll<false>(query, count);
    } else {
      FoldAll<true>(query, count);
    }
    if (plan.layout.places == ScorePlaces::kSideBySide) {
      SumReplicas(scratch.fold, rows.count * columns.count(), step(), kWindows, group.slots);
    }
    if (z == nullptr) {
      EachChunk<8>([&](auto vectors, int64_t v) HWY_ATTR {
        if (v == 0) {
          Dots<vectors.value, false, false>(dz, v, z);
        } else {
          Dots<vectors.value, true, false>(dz, v, z);
        }
      });
    } else {
      EachChunk<kMostWithZ>([&](auto vectors, int64_t v) HWY_ATTR {
        if (v == 0) {
          Dots<vectors.value, false, true>(dz, v, z);
        } else {
          Dots<vectors.value, true, true>(dz, v, z);
        }
      });
    }
    SumReplicas(scratch.g, rows.count * columns.count(), step(), kWindows, group.slots);
    for (int64_t l = query; l < query + count; ++l) {
      ScoreGradients(l);
      ScatterScores(l);
    }
    EachChunk<8>([&](auto vectors, int64_t v) HWY_ATTR { ScatterValues<vectors.value>(dz, v); });
  }

  HWY_INLINE void Run(const float* dz, float* z, int64_t query_stride) {
    const int64_t queries = group.score_vectors;
    Prepare();
    if (!plan.shape.separate) return Gradients(0, queries, dz, z);
    for (int64_t l = 0; l < queries; ++l) {
      Gradients(l, 1, dz + l * query_stride, z == nullptr ? nullptr : z + l * query_stride);
    }
  }
};

// Windows [begin, end) of an output row. `origin` is the input column at which the rows' pointers
// start, `width` how many columns they hold. dz: [end - begin][value_floats], a plane for every
// query if separate, query_stride apart; z, if not null, gets the forward result in the same form.
inline HWY_NOINLINE void BackwardRow(const WindowPlan& plan, const TapRows& rows,
                                     const GradRows& grads, int64_t begin, int64_t end,
                                     int64_t origin, int64_t width, const float* dz, float* z,
                                     int64_t query_stride, float* scratch_memory) {
  const WindowShape& s = plan.shape;
  const BackwardScratch scratch(s, plan.layout.most_score_vectors, scratch_memory);
  const auto columns_at = [&](int64_t j) {
    const int64_t start = j * s.stride_w - s.pad_left - origin;
    return TapColumns{start, valid_taps(start, s.kernel_w, s.dilation_w, width)};
  };
  for (const HeadGroup& group : plan.layout.groups) {
    for (int64_t j = begin; j < end;) {
      const TapColumns columns = columns_at(j);
      const int64_t last = j + kBackwardTile - 1;
      const int64_t offset = (j - begin) * plan.layout.value_floats + group.value_offset;
      float* window_z = z == nullptr ? nullptr : z + offset;
      if (s.dilation_w == 1 && columns.count() == s.kernel_w && last < end &&
          columns_at(last).count() == s.kernel_w) {
        BackwardTile<kBackwardTile> tile{plan, rows, grads, group, columns, scratch};
        tile.Run(dz + offset, window_z, query_stride);
        j += kBackwardTile;
      } else {
        BackwardTile<1> tile{plan, rows, grads, group, columns, scratch};
        tile.Run(dz + offset, window_z, query_stride);
        ++j;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_WINDOW_BACKWARD_INL_H_
