// The values of a window, weighted and summed: of one window, or of several side by side.

#if defined(QNA_KERNELS_WINDOW_AGGREGATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_WINDOW_AGGREGATE_INL_H_
#undef QNA_KERNELS_WINDOW_AGGREGATE_INL_H_
#else
#define QNA_KERNELS_WINDOW_AGGREGATE_INL_H_
#endif

#include "qna/kernels/window_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// How many windows share the loads of values, and of how many vectors: the sums of all of them
// fill half of the registers.
constexpr int kNeighbourVectors = 4;
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kNeighbours = 4;
#else
constexpr int kNeighbours = 2;
#endif

// z [kVectors] of one window (+)= sum over taps of weight * value. `add`: to what z holds.
template <int kVectors>
HWY_NOINLINE void Aggregate(const WindowPlan& plan, const TapRows& rows, const TapColumns& columns,
                            bool add, int64_t value_offset, const float* HWY_RESTRICT weights,
                            int64_t weight_step, float* HWY_RESTRICT z) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  const int64_t tap_step = plan.shape.dilation_w * plan.layout.record();
  FloatVector sums[kVectors];
  QNA_UNROLL
  for (int v = 0; v < kVectors; ++v) sums[v] = add ? hn::Load(d, z + v * lanes) : hn::Zero(d);
  for (int64_t y = 0; y < rows.count; ++y) {
    const float* HWY_RESTRICT value = rows.records[y] + columns.start * plan.layout.record() +
                                      columns.range.begin * tap_step + value_offset;
    for (int64_t x = columns.range.begin; x < columns.range.end; ++x) {
      const FloatVector weight = hn::Load(d, weights);
      QNA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[v] = hn::MulAdd(weight, hn::Load(d, value + v * lanes), sums[v]);
      }
      weights += weight_step;
      value += tap_step;
    }
  }
  QNA_UNROLL
  for (int v = 0; v < kVectors; ++v) hn::Store(sums[v], d, z + v * lanes);
}

// Where AggregateNeighbours has a tap's weights from: as FoldQueries stored them,
struct StoredWeights {
  StoredWeights(const WindowPlan& plan, const float* weights_in, int64_t step_in)
      : weights(weights_in),
        step(step_in),
        row_step(plan.shape.kernel_w * step),
        window_step(Lanes() - plan.shape.stride_w * step) {}

  HWY_INLINE void row(int64_t y) { weight = weights + y * row_step; }
  HWY_INLINE void column() {}
  // Of window w. The column that is a tap of the first window is an earlier one of the next.
  HWY_INLINE FloatVector of(int w) const { return hn::Load(FloatTag(), weight + w * window_step); }
  HWY_INLINE void next_column() { weight += step; }

  const float* weights;  // [tap][windows of the tile][lanes]
  int64_t step, row_step, window_step;
  const float* weight = nullptr;  // of the first window
};

// or computed on the spot, where one vector holds the scores of all queries: FoldQueries and
// SumReplicas in registers, by the same operations. kSteps: log2 of the group's replicas.
template <int kTogether, int kSteps>
struct FoldedWeights {
  FoldedWeights(const WindowPlan& plan_in, const TapRows& rows_in, const TapColumns& columns,
                const HeadGroup& group, const float* inverse_memory)
      : plan(plan_in),
        rows(rows_in),
        first(columns.start * plan.layout.score_floats + group.score_offset),
        offset(group.score_offset),
        step(plan.layout.score_floats),
        window_step(plan.shape.stride_w * step) {
    const FloatTag d;
    QNA_UNROLL
    for (int w = 0; w < kTogether; ++w) inverse[w] = hn::Load(d, inverse_memory + w * Lanes());
    HWY_ALIGN int32_t lanes[HWY_MAX_BYTES / sizeof(int32_t)];
    const auto other_lanes = [&](int64_t distance) HWY_ATTR {
      for (int64_t lane = 0; lane < Lanes(); ++lane) {
        lanes[lane] = static_cast<int32_t>(lane ^ distance);
      }
      return hn::SetTableIndices(d, lanes);
    };
    if constexpr (kSteps > 0) other = other_lanes(group.slots);
    if constexpr (kSteps > 1) next_other = other_lanes(2 * group.slots);
  }

  HWY_INLINE void row(int64_t y) {
    exp = rows.exps[y] + first;
    table = plan.tables.exp_bias_weight + (rows.first + y) * plan.shape.kernel_w * step + offset;
  }
  HWY_INLINE void column() {
    exps = hn::Load(FloatTag(), exp);
    QNA_IN_REGISTER(exps);
  }
  HWY_INLINE FloatVector of(int w) const {
    const FloatVector factor = hn::Load(FloatTag(), table - w * window_step);
    FloatVector weight = hn::Mul(hn::Mul(exps, inverse[w]), factor);
    if (kSteps > 0) weight = hn::Add(weight, hn::TableLookupLanes(weight, other));
    if (kSteps > 1) weight = hn::Add(weight, hn::TableLookupLanes(weight, next_other));
    return weight;
  }
  HWY_INLINE void next_column() {
    exp += step;
    table += step;
  }

  using Indices = decltype(hn::SetTableIndices(FloatTag(), static_cast<int32_t*>(nullptr)));
  const WindowPlan& plan;
  const TapRows& rows;
  int64_t first, offset, step, window_step;
  FloatVector inverse[kTogether];
  Indices other, next_other;
  FloatVector exps;
  const float* exp = nullptr;
  const float* table = nullptr;
};

// The same for kTogether windows side by side, `stride` columns apart: a value is loaded once for
// all that see it. Needs dilation 1 and stride <= kernel_w. Each window's taps are added in the
// same order as in Aggregate, so the bits are the same.
template <int kTogether, int kVectors, typename Weights>
HWY_NOINLINE void AggregateNeighbours(const WindowPlan& plan, const TapRows& rows,
                                      const TapColumns& columns, bool add, int64_t value_offset,
                                      Weights weights, float* HWY_RESTRICT z, int64_t z_stride) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  const int64_t record = plan.layout.record();
  const int64_t kernel_w = plan.shape.kernel_w;
  const int64_t stride = plan.shape.stride_w;
  const int64_t column_count = kernel_w + (kTogether - 1) * stride;
  FloatVector sums[kTogether][kVectors];
  QNA_UNROLL
  for (int w = 0; w < kTogether; ++w) {
    QNA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[w][v] = add ? hn::Load(d, z + w * z_stride + v * lanes) : hn::Zero(d);
    }
  }
  for (int64_t y = 0; y < rows.count; ++y) {
    const float* HWY_RESTRICT value = rows.records[y] + columns.start * record + value_offset;
    weights.row(y);
    for (int64_t x = 0; x < column_count; ++x) {
      FloatVector values[kVectors];
      QNA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        values[v] = hn::Load(d, value + v * lanes);
        QNA_IN_REGISTER(values[v]);
      }
      weights.column();
      QNA_UNROLL
      for (int w = 0; w < kTogether; ++w) {
        // Also false for a tap before the first.
        if (static_cast<uint64_t>(x - w * stride) < static_cast<uint64_t>(kernel_w)) {
          const FloatVector weight = weights.of(w);
          QNA_UNROLL
          for (int v = 0; v < kVectors; ++v) {
            sums[w][v] = hn::MulAdd(weight, values[v], sums[w][v]);
          }
        }
      }
      weights.next_column();
      value += record;
    }
  }
  QNA_UNROLL
  for (int w = 0; w < kTogether; ++w) {
    QNA_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[w][v], d, z + w * z_stride + v * lanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_WINDOW_AGGREGATE_INL_H_
