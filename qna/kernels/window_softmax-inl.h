// The softmax over windows: one exponential per pixel and score serves all windows that see it.
//
// With E = exp(score), taken once per pixel, and B = exp(bias), taken once per call,
//   p[l, t] = E[l, n(t)] B[l, t] / sum over t.
// No maximum is subtracted, so E is clamped, and a window's sum tells whether that harmed it:
//   - a score below kMinScore gives E = 0; beside a sum of at least kMinSum that changes nothing;
//   - a score above kMaxScore is clamped, and then the sum exceeds kMaxSum.
// A window whose sum is outside [kMinSum, kMaxSum] is done again, exactly, with its own maximum.
// So every finite input is exact, common inputs run at the fast speed, and what a window gives
// depends on nothing outside it: a shifted image gives the shifted output, bit by bit.

#if defined(QNA_KERNELS_WINDOW_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_WINDOW_SOFTMAX_INL_H_
#undef QNA_KERNELS_WINDOW_SOFTMAX_INL_H_
#else
#define QNA_KERNELS_WINDOW_SOFTMAX_INL_H_
#endif

#include <cmath>
#include <limits>
#include <type_traits>

#include "hwy/contrib/math/math-inl.h"
#include "qna/kernels/gemm-inl.h"
#include "qna/kernels/packed_layout.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// exp(-87) = 2^-125.5 is still a normal number; what is lost below it is at most 2^-125 per tap,
// 2^-45 of kMinSum.
constexpr float kMinScore = -87.0f;
constexpr float kMinSum = 0x1p-80f;
// exp(83) = 2^119.7. The smallest B is 2^-24 (kMaxBiasSpread), so a clamped tap adds 2^95.7 at
// least.
constexpr float kMaxScore = 83.0f;
constexpr float kMaxSum = 0x1p95f;
// 24 * ln 2. Where the finite biases of a query and head are further apart, every window is done
// exactly for its group of heads.
constexpr float kMaxBiasSpread = 16.6355f;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Bias and tap weights in the order of the packed scores: [taps][score_floats].
struct WindowTables {
  float* bias;             // less its maximum over the taps: at most 0
  float* exp_bias;         // B
  float* weight;           // w
  float* exp_bias_weight;  // B w
  float* exact;            // [groups]: 1 where biases are too far apart for the fast way
};

inline int64_t TableFloats(const WindowShape& shape, const PackedLayout& layout) {
  return 4 * shape.taps() * layout.score_floats + static_cast<int64_t>(layout.groups.size());
}

inline WindowTables TablesIn(float* memory, const WindowShape& shape, const PackedLayout& layout) {
  const int64_t size = shape.taps() * layout.score_floats;
  return {memory, memory + size, memory + 2 * size, memory + 3 * size, memory + 4 * size};
}

inline WindowTables MakeTables(const WindowShape& shape, const PackedLayout& layout,
                               const float* bias, const float* weight, float* memory) {
  const int64_t count = layout.score_floats;
  WindowTables tables = TablesIn(memory, shape, layout);
  const std::vector<int32_t> sources = layout.score_sources();
  std::fill_n(tables.exact, layout.groups.size(), 0.0f);
  size_t group = 0;  // of c
  for (int64_t c = 0; c < count; ++c) {
    const int32_t source = sources[c];
    if (group + 1 < layout.groups.size() && c == layout.groups[group + 1].score_offset) ++group;
    // A lane that holds nothing has weight 0: it adds nothing to the sum over the queries.
    const auto raw = [&](const float* table, int64_t t, float otherwise) {
      if (source < 0) return 0.0f;
      return table == nullptr ? otherwise : table[t * shape.scores() + source];
    };
    float maximum = kMinusInfinity;
    float minimum = -kMinusInfinity;
    for (int64_t t = 0; t < shape.taps(); ++t) {
      const float b = raw(bias, t, 0.0f);
      maximum = std::max(maximum, b);
      if (b != kMinusInfinity) minimum = std::min(minimum, b);
    }
    // Also true for +inf among the biases. (A NaN makes its windows' sums NaN.)
    if (!(maximum - minimum <= kMaxBiasSpread) && maximum != kMinusInfinity) {
      tables.exact[group] = 1;
    }
    for (int64_t t = 0; t < shape.taps(); ++t) {
      const int64_t i = t * count + c;
      const float b = raw(bias, t, 0.0f);
      const float w = raw(weight, t, 1.0f);
      tables.bias[i] = b == kMinusInfinity ? b : b - maximum;
      tables.exp_bias[i] = std::exp(tables.bias[i]);
      tables.weight[i] = w;
      tables.exp_bias_weight[i] = tables.exp_bias[i] * w;
    }
  }
  return tables;
}

// E of `pixels` records' scores. A masked pixel (mask may be null) is made to take no part: E = 0,
// score = -inf and values = 0, since 0 * inf would be NaN.
inline HWY_NOINLINE void Exponentials(const PackedLayout& layout, float* HWY_RESTRICT records,
                                      float* HWY_RESTRICT exps, const uint8_t* mask,
                                      int64_t pixels) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  const FloatVector low = hn::Set(d, kMinScore);
  const FloatVector high = hn::Set(d, kMaxScore);
  for (int64_t n = 0; n < pixels; ++n) {
    float* HWY_RESTRICT values = records + n * layout.record();
    float* HWY_RESTRICT scores = values + layout.value_floats;
    float* HWY_RESTRICT out = exps + n * layout.score_floats;
    if (mask != nullptr && mask[n] == 0) {
      std::fill(values, values + layout.value_floats, 0.0f);
      std::fill(scores, scores + layout.score_floats, kMinusInfinity);
      std::fill(out, out + layout.score_floats, 0.0f);
      continue;
    }
    for (int64_t c = 0; c < layout.score_floats; c += lanes) {
      const FloatVector score = hn::Load(d, scores + c);
      const FloatVector e = hn::Exp(d, hn::Min(score, high));
      // Below `low`: 0. NaN (which compares false): NaN, so that it is not lost.
      const FloatVector kept = hn::IfThenElseZero(hn::Not(hn::Lt(score, low)), e);
      hn::Store(hn::IfThenElse(hn::IsNaN(score), score, kept), d, out + c);
    }
  }
}

// The input rows under one output row, from the first valid tap row on.
struct TapRows {
  const float* const* records;  // each: [columns][record]
  const float* const* exps;     // each: [columns][score_floats]
  int64_t first;                // tap row of records[0]
  int64_t count;
};

// Everything about a problem that a row of windows needs.
struct WindowPlan {
  WindowPlan(const WindowShape& shape_in, const WindowTables& tables_in,
             const PackedLayout& layout_in)
      : shape(shape_in), tables(tables_in), layout(layout_in) {}
  const WindowShape& shape;
  const WindowTables& tables;
  const PackedLayout& layout;
};

// Taps of one window (or of a tile of windows side by side with the same taps): column of its first
// tap, which may be left of the map, and the valid tap columns.
struct TapColumns {
  int64_t start;
  TapRange range;
  int64_t count() const { return range.end - range.begin; }
};

// Where a group repeats its heads, a product of two vectors leaves every head's sum in parts, one
// per replica, and the weights of queries side by side are such parts too. Adds them up, so that
// each lane has all of it: in `count` cells, `step` floats apart, of `windows` vectors each.
inline void SumReplicas(float* HWY_RESTRICT cells, int64_t count, int64_t step, int windows,
                        int64_t slots) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  for (int64_t distance = slots; distance < lanes; distance *= 2) {
    HWY_ALIGN int32_t other[HWY_MAX_BYTES / sizeof(int32_t)];
    for (int64_t lane = 0; lane < lanes; ++lane) {
      other[lane] = static_cast<int32_t>(lane ^ distance);
    }
    const auto indices = hn::SetTableIndices(d, other);
    for (int64_t i = 0; i < count; ++i)
      for (int w = 0; w < windows; ++w) {
        float* HWY_RESTRICT cell = cells + i * step + w * lanes;
        const FloatVector part = hn::Load(d, cell);
        hn::Store(hn::Add(part, hn::TableLookupLanes(part, indices)), d, cell);
      }
  }
}

// p of one window, vector of scores and head group by its own maximum: of tap row y and column x at
// p + y * row_step + x * tap_step, counted from the first that take part. All 0 where none does.
inline HWY_NOINLINE void ExactAttention(const WindowPlan& plan, const TapRows& rows,
                                        const TapColumns& columns, const HeadGroup& group,
                                        int64_t query, float* HWY_RESTRICT p, int64_t tap_step,
                                        int64_t row_step) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  const PackedLayout& layout = plan.layout;
  const int64_t offset = group.score_offset + query * lanes;
  const FloatVector minus_infinity = hn::Set(d, kMinusInfinity);
  const auto or_zero = [&](FloatVector maximum) HWY_ATTR {
    return hn::IfThenZeroElse(hn::Eq(maximum, minus_infinity), maximum);
  };
  const auto each_tap = [&](const auto& visit) HWY_ATTR {
    for (int64_t y = 0; y < rows.count; ++y)
      for (int64_t x = columns.range.begin; x < columns.range.end; ++x) {
        const int64_t pixel = columns.start + x * plan.shape.dilation_w;
        const int64_t tap = (rows.first + y) * plan.shape.kernel_w + x;
        visit(hn::Load(d, rows.records[y] + pixel * layout.record() + layout.value_floats + offset),
              hn::Load(d, plan.tables.bias + tap * layout.score_floats + offset),
              p + y * row_step + (x - columns.range.begin) * tap_step);
      }
  };
  // The scores' maximum first: the difference of near numbers is exact, score + bias is not.
  FloatVector top = minus_infinity;
  auto nan = hn::IsNaN(top);
  each_tap([&](FloatVector score, FloatVector, float*) HWY_ATTR {
    top = hn::IfThenElse(hn::Gt(score, top), score, top);
    nan = hn::Or(nan, hn::IsNaN(score));
  });
  if (hn::AllTrue(d, hn::Eq(top, minus_infinity)) && hn::AllFalse(d, nan)) {  // all masked
    each_tap([&](FloatVector, FloatVector, float* out)
                 HWY_ATTR { hn::Store(hn::Zero(d), d, out); });
    return;
  }
  top = or_zero(top);
  FloatVector maximum = minus_infinity;
  each_tap([&](FloatVector score, FloatVector bias, float* out) HWY_ATTR {
    const FloatVector u = hn::Add(hn::Sub(score, top), bias);
    maximum = hn::IfThenElse(hn::Gt(u, maximum), u, maximum);
    hn::Store(u, d, out);
  });
  maximum = or_zero(maximum);
  FloatVector sum = hn::Zero(d);
  each_tap([&](FloatVector, FloatVector, float* out) HWY_ATTR {
    const FloatVector u = hn::Load(d, out);
    const FloatVector e = hn::Exp(d, hn::Sub(u, maximum));
    const FloatVector kept = hn::IfThenElse(hn::IsNaN(u), u, e);  // NaN stays NaN
    sum = hn::Add(sum, kept);
    hn::Store(kept, d, out);
  });
  const FloatVector inverse =
      hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(d)), hn::Div(hn::Set(d, 1.0f), sum));
  each_tap([&](FloatVector, FloatVector, float* out)
               HWY_ATTR { hn::Store(hn::Mul(hn::Load(d, out), inverse), d, out); });
}

// 1 / sum over the window of E B, for kWindows windows side by side and kQueries vectors of
// scores from `query` on. Returns a bit per window: 1 where the sum is not to be trusted.
template <int kWindows, int kQueries>
HWY_INLINE uint32_t InverseSums(const WindowPlan& plan, const TapRows& rows,
                                const TapColumns& columns, const HeadGroup& group, int64_t query,
                                FloatVector (&inverse)[kWindows][kQueries]) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  const int64_t score_floats = plan.layout.score_floats;
  const int64_t offset = group.score_offset + query * lanes;
  const int64_t window_step = plan.shape.stride_w * score_floats;
  const int64_t tap_step = plan.shape.dilation_w * score_floats;
  FloatVector sums[kWindows][kQueries];
  QNA_UNROLL
  for (int w = 0; w < kWindows; ++w) {
    QNA_UNROLL
    for (int l = 0; l < kQueries; ++l) sums[w][l] = hn::Zero(d);
  }
  const int64_t count = columns.count();
  for (int64_t y = 0; y < rows.count; ++y) {
    const float* HWY_RESTRICT e =
        rows.exps[y] + columns.start * score_floats + columns.range.begin * tap_step + offset;
    const float* HWY_RESTRICT b =
        plan.tables.exp_bias +
        ((rows.first + y) * plan.shape.kernel_w + columns.range.begin) * score_floats + offset;
    for (int64_t x = 0; x < count; ++x) {
      QNA_UNROLL
      for (int l = 0; l < kQueries; ++l) {
        FloatVector exp_bias = hn::Load(d, b + l * lanes);
        QNA_IN_REGISTER(exp_bias);
        QNA_UNROLL
        for (int w = 0; w < kWindows; ++w) {
          sums[w][l] =
              hn::MulAdd(hn::Load(d, e + w * window_step + l * lanes), exp_bias, sums[w][l]);
        }
      }
      e += tap_step;
      b += score_floats;
    }
  }
  const int64_t index = &group - plan.layout.groups.data();
  uint32_t distrusted = plan.tables.exact[index] != 0 ? ~0u : 0u;
  const FloatVector low = hn::Set(d, kMinSum);
  const FloatVector high = hn::Set(d, kMaxSum);
  QNA_UNROLL
  for (int w = 0; w < kWindows; ++w) {
    QNA_UNROLL
    for (int l = 0; l < kQueries; ++l) {
      const auto trusted = hn::And(hn::Ge(sums[w][l], low), hn::Le(sums[w][l], high));
      if (!hn::AllTrue(d, trusted)) distrusted |= 1u << w;
      inverse[w][l] = hn::Div(hn::Set(d, 1.0f), sums[w][l]);
    }
  }
  return distrusted;
}

// The same for vectors of scores [query, query + count), into inverse [count][kWindows][lanes],
// vectors of scores `step` apart.
template <int kWindows>
HWY_INLINE uint32_t StoreInverseSums(const WindowPlan& plan, const TapRows& rows,
                                     const TapColumns& columns, const HeadGroup& group,
                                     int64_t query, int64_t count, float* HWY_RESTRICT inverse,
                                     int64_t step) {
  uint32_t distrusted = 0;
  const auto run = [&](auto queries, int64_t l) HWY_ATTR {
    FloatVector sums[kWindows][queries.value];
    distrusted |= InverseSums(plan, rows, columns, group, query + l, sums);
    for (int w = 0; w < kWindows; ++w)
      for (int i = 0; i < queries.value; ++i) {
        hn::Store(sums[w][i], FloatTag(), inverse + (l + i) * step + w * Lanes());
      }
  };
  int64_t l = 0;
  for (; l + 2 <= count; l += 2) run(std::integral_constant<int, 2>(), l);
  if (l < count) run(std::integral_constant<int, 1>(), l);
  return distrusted;
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_WINDOW_SOFTMAX_INL_H_
