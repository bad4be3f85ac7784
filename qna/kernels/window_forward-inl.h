// One row of windows, forward: fold the queries into one weight per tap and head, then touch the
// values once.

#if defined(QNA_KERNELS_WINDOW_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_WINDOW_FORWARD_INL_H_
#undef QNA_KERNELS_WINDOW_FORWARD_INL_H_
#else
#define QNA_KERNELS_WINDOW_FORWARD_INL_H_
#endif

#include <type_traits>

#include "qna/kernels/window_aggregate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// Windows side by side that share a pass over the bias table.
constexpr int kTileWindows = 4;

// Values that a block of tap rows reads should leave room in the first-level cache for the tables,
// the exponentials and the weights.
constexpr int64_t kBlockBytes = 16 << 10;

// Scratch of ForwardRow.
struct ForwardScratch {
  static int64_t floats(const WindowShape& shape) {
    return ((kTileWindows + 1) * shape.taps() + kTileWindows * shape.queries) * Lanes();
  }
  ForwardScratch(const WindowShape& shape, float* memory)
      : weights(memory),
        exact(weights + kTileWindows * shape.taps() * Lanes()),
        inverse(exact + shape.taps() * Lanes()) {}
  float* weights;  // [tap][windows][lanes] of a tile
  float* exact;    // [tap][lanes]: p of one query and window
  float* inverse;  // [queries][windows][lanes]: 1 / sum
};

// weights [tap][kWindows][lanes] (+)= sum over kQueries vectors of scores of w p, for the
// taps in `rows`.
template <int kWindows, int kQueries, bool kAdd>
HWY_NOINLINE void FoldQueries(const WindowPlan& plan, const TapRows& rows,
                              const TapColumns& columns, const HeadGroup& group, int64_t query,
                              const float* HWY_RESTRICT inverse_memory,
                              float* HWY_RESTRICT weights) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  const int64_t score_floats = plan.layout.score_floats;
  const int64_t offset = group.score_offset + query * lanes;
  const int64_t window_step = plan.shape.stride_w * score_floats;
  const int64_t tap_step = plan.shape.dilation_w * score_floats;
  FloatVector inverse[kWindows][kQueries];
  QNA_UNROLL
  for (int w = 0; w < kWindows; ++w) {
    QNA_UNROLL
    for (int l = 0; l < kQueries; ++l) {
      inverse[w][l] = hn::Load(d, inverse_memory + (l * kWindows + w) * lanes);
    }
  }
  // Vector stores may alias anything in the compiler's eyes: keep what the loop needs in locals.
  const int64_t count = columns.count();
  const int64_t row_count = rows.count;
  for (int64_t y = 0; y < row_count; ++y) {
    const float* HWY_RESTRICT e =
        rows.exps[y] + columns.start * score_floats + columns.range.begin * tap_step + offset;
    const float* HWY_RESTRICT b =
        plan.tables.exp_bias_weight +
        ((rows.first + y) * plan.shape.kernel_w + columns.range.begin) * score_floats + offset;
    for (int64_t x = 0; x < count; ++x) {
      FloatVector factor[kQueries];
      QNA_UNROLL
      for (int l = 0; l < kQueries; ++l) {
        factor[l] = hn::Load(d, b + l * lanes);
        QNA_IN_REGISTER(factor[l]);
      }
      QNA_UNROLL
      for (int w = 0; w < kWindows; ++w) {
        const float* HWY_RESTRICT window_e = e + w * window_step;
        FloatVector sum = hn::Zero(d);
        QNA_UNROLL
        for (int l = 0; l < kQueries; ++l) {
          // (E / sum) first: it is at most 1 / B and cannot overflow.
          const FloatVector scaled = hn::Mul(hn::Load(d, window_e + l * lanes), inverse[w][l]);
          sum = l == 0 ? hn::Mul(scaled, factor[l]) : hn::MulAdd(scaled, factor[l], sum);
        }
        if (kAdd) sum = hn::Add(sum, hn::Load(d, weights + w * lanes));
        hn::Store(sum, d, weights + w * lanes);
      }
      weights += kWindows * lanes;
      e += tap_step;
      b += score_floats;
    }
  }
}

// The same for vectors [query, query + count), in pairs.
template <int kWindows>
HWY_INLINE void FoldAll(const WindowPlan& plan, const TapRows& rows, const TapColumns& columns,
                        const HeadGroup& group, int64_t query, int64_t count,
                        const ForwardScratch& scratch) {
  const int64_t step = kWindows * Lanes();
  if (count == 1) {
    return FoldQueries<kWindows, 1, false>(plan, rows, columns, group, query, scratch.inverse,
                                           scratch.weights);
  }
  FoldQueries<kWindows, 2, false>(plan, rows, columns, group, query, scratch.inverse,
                                  scratch.weights);
  int64_t l = 2;
  for (; l + 2 <= count; l += 2) {
    FoldQueries<kWindows, 2, true>(plan, rows, columns, group, query + l,
                                   scratch.inverse + l * step, scratch.weights);
  }
  if (l < count) {
    FoldQueries<kWindows, 1, true>(plan, rows, columns, group, query + l,
                                   scratch.inverse + l * step, scratch.weights);
  }
}

// Rare: the weights of the windows that need their own maximum replace what the fast way wrote.
template <int kWindows>
HWY_NOINLINE void FoldExactly(const WindowPlan& plan, const TapRows& rows,
                              const TapColumns& columns, const HeadGroup& group, int64_t query,
                              int64_t count, uint32_t distrusted, const ForwardScratch& scratch) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  const int64_t width = columns.count();
  for (int w = 0; w < kWindows; ++w) {
    if ((distrusted >> w & 1) == 0) continue;
    const TapColumns window{columns.start + w * plan.shape.stride_w, columns.range};
    for (int64_t l = query; l < query + count; ++l) {
      ExactAttention(plan, rows, window, group, l, scratch.exact, lanes, width * lanes);
      for (int64_t i = 0; i < rows.count * width; ++i) {
        const int64_t tap =
            (rows.first + i / width) * plan.shape.kernel_w + columns.range.begin + i % width;
        const FloatVector factor = hn::Load(d, plan.tables.weight + tap * plan.layout.score_floats +
                                                   group.score_offset + l * lanes);
        float* cell = scratch.weights + (i * kWindows + w) * lanes;
        const FloatVector before = l == query ? hn::Zero(d) : hn::Load(d, cell);
        hn::Store(hn::MulAdd(factor, hn::Load(d, scratch.exact + i * lanes), before), d, cell);
      }
    }
  }
}

HWY_INLINE bool HasNeighbours(const WindowPlan& plan) {
  return plan.shape.dilation_w == 1 && plan.shape.stride_w <= plan.shape.kernel_w;
}

template <int kWindows>
HWY_INLINE void AggregateTile(const WindowPlan& plan, const TapRows& rows,
                              const TapColumns& columns, const HeadGroup& group, bool add,
                              const float* weights, float* z, int64_t z_stride) {
  const int64_t lanes = Lanes();
  const int64_t step = kWindows * lanes;
  const bool neighbours = kWindows % kNeighbours == 0 && HasNeighbours(plan);
  int64_t v = 0;
  const auto run = [&](auto vectors) HWY_ATTR {
    if (neighbours && vectors.value > kNeighbourVectors) return;
    for (; v + vectors.value <= group.vectors; v += vectors.value) {
      for (int w = 0; w < kWindows; w += neighbours ? kNeighbours : 1) {
        const TapColumns window{columns.start + w * plan.shape.stride_w, columns.range};
        const int64_t offset = group.value_offset + v * lanes;
        float* out = z + w * z_stride + offset;
        if (!neighbours) {
          Aggregate<vectors.value>(plan, rows, window, add, offset, weights + w * lanes, step, out);
        } else if constexpr (vectors.value <= kNeighbourVectors) {
          AggregateNeighbours<kNeighbours, vectors.value>(
              plan, rows, window, add, offset, StoredWeights(plan, weights + w * lanes, step), out,
              z_stride);
        }
      }
    }
  };
  run(std::integral_constant<int, 8>());
  run(std::integral_constant<int, 4>());
  run(std::integral_constant<int, 2>());
  run(std::integral_constant<int, 1>());
}

// Both at once, where few vectors hold the values and there are registers enough. Returns whether
// it was done.
template <int kWindows>
HWY_INLINE bool FoldAndAggregateTile([[maybe_unused]] const WindowPlan& plan,
                                     [[maybe_unused]] const TapRows& rows,
                                     [[maybe_unused]] const TapColumns& columns,
                                     [[maybe_unused]] const HeadGroup& group,
                                     [[maybe_unused]] bool add,
                                     [[maybe_unused]] const float* inverse,
                                     [[maybe_unused]] float* z, [[maybe_unused]] int64_t z_stride) {
  if constexpr (kNeighbours == 4 && kWindows == kNeighbours) {
    if (group.score_vectors != 1 || !HasNeighbours(plan) ||
        plan.layout.places != ScorePlaces::kSideBySide) {
      return false;
    }
    const auto run = [&](auto vectors, auto steps) HWY_ATTR {
      using Weights = FoldedWeights<kNeighbours, decltype(steps)::value>;
      AggregateNeighbours<kNeighbours, decltype(vectors)::value>(
          plan, rows, columns, add, group.value_offset,
          Weights(plan, rows, columns, group, inverse), z + group.value_offset, z_stride);
      return true;
    };
    const auto run_steps = [&](auto vectors) HWY_ATTR {
      if (group.replicas == 1) return run(vectors, std::integral_constant<int, 0>());
      if (group.replicas == 2) return run(vectors, std::integral_constant<int, 1>());
      if (group.replicas == 4) return run(vectors, std::integral_constant<int, 2>());
      return false;
    };
    if (group.vectors == 4) return run_steps(std::integral_constant<int, 4>());
    if (group.vectors == 2) return run_steps(std::integral_constant<int, 2>());
  }
  return false;
}

// The output z of kWindows windows side by side, by vectors of scores [query, query + count)
// together.
template <int kWindows>
HWY_INLINE void ForwardTile(const WindowPlan& plan, const TapRows& rows, const TapColumns& columns,
                            const HeadGroup& group, int64_t query, int64_t count, float* z,
                            int64_t z_stride, const ForwardScratch& scratch) {
  const int64_t step = kWindows * Lanes();
  const uint32_t distrusted =
      StoreInverseSums<kWindows>(plan, rows, columns, group, query, count, scratch.inverse, step);
  // A large window goes by blocks of tap rows, each for all windows of the tile, so that its values
  // come from the first-level cache; the sums are the same, in the same order.
  const int64_t row_bytes =
      plan.shape.kernel_w * group.vectors * Lanes() * static_cast<int64_t>(sizeof(float));
  const int64_t blocks =
      distrusted != 0 ? 1 : (rows.count * row_bytes + kBlockBytes - 1) / kBlockBytes;
  const int64_t block = (rows.count + blocks - 1) / std::max<int64_t>(1, blocks);
  int64_t y = 0;
  do {
    const TapRows part{rows.records + y, rows.exps + y, rows.first + y,
                       std::min(block, rows.count - y)};
    const bool add = y > 0;
    y += block;
    if (HWY_LIKELY(distrusted == 0) &&
        FoldAndAggregateTile<kWindows>(plan, part, columns, group, add, scratch.inverse, z,
                                       z_stride)) {
      continue;
    }
    FoldAll<kWindows>(plan, part, columns, group, query, count, scratch);
    if (HWY_UNLIKELY(distrusted != 0)) {
      FoldExactly<kWindows>(plan, part, columns, group, query, count, distrusted, scratch);
    }
    if (plan.layout.places == ScorePlaces::kSideBySide) {
      SumReplicas(scratch.weights, part.count * columns.count(), step, kWindows, group.slots);
    }
    AggregateTile<kWindows>(plan, part, columns, group, add, scratch.weights, z, z_stride);
  } while (y < rows.count);
}

// Windows [begin, end) of an output row. `origin` is the input column at which the rows' pointers
// start, `width` how many columns they hold. z: [end - begin][value_floats], a plane for every
// query if separate, z_query_stride apart.
inline HWY_NOINLINE void ForwardRow(const WindowPlan& plan, const TapRows& rows, int64_t begin,
                                    int64_t end, int64_t origin, int64_t width, float* z,
                                    int64_t z_query_stride, float* scratch_memory) {
  const WindowShape& s = plan.shape;
  const ForwardScratch scratch(s, scratch_memory);
  const int64_t z_stride = plan.layout.value_floats;
  const auto columns_at = [&](int64_t j) {
    const int64_t start = j * s.stride_w - s.pad_left - origin;
    return TapColumns{start, valid_taps(start, s.kernel_w, s.dilation_w, width)};
  };
  for (const HeadGroup& group : plan.layout.groups) {
    const int64_t together = s.separate ? 1 : group.score_vectors;  // that share an output
    for (int64_t j = begin; j < end;) {
      const TapColumns columns = columns_at(j);
      float* out = z + (j - begin) * z_stride;
      const int64_t last = j + kTileWindows - 1;
      const bool tile =
          columns.count() == s.kernel_w && last < end && columns_at(last).count() == s.kernel_w;
      for (int64_t l = 0; l < group.score_vectors; l += together, out += z_query_stride) {
        if (tile) {
          ForwardTile<kTileWindows>(plan, rows, columns, group, l, together, out, z_stride,
                                    scratch);
        } else {
          ForwardTile<1>(plan, rows, columns, group, l, together, out, z_stride, scratch);
        }
      }
      j += tile ? kTileWindows : 1;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_WINDOW_FORWARD_INL_H_
