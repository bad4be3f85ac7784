// Activations and LayerNorm's normalisation on rows in cache.

#if defined(QNA_KERNELS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_ACTIVATION_INL_H_
#undef QNA_KERNELS_ACTIVATION_INL_H_
#else
#define QNA_KERNELS_ACTIVATION_INL_H_
#endif

#include <cmath>
#include <cstring>

#include "qna/kernels/dense.h"
#include "qna/kernels/exp-inl.h"
#include "qna/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// x / (1 + 2^e). Where 2^e is infinite the quotient is 0.
HWY_INLINE FloatVector OverOnePlusExp2(FloatVector x, FloatVector e) {
  return hn::Div(x, hn::Add(hn::Set(FloatTag(), 1.0f), Exp2(e)));
}

// x / 2 (1 + tanh(u)) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
HWY_INLINE FloatVector GeluTanh(FloatVector x) {
  const FloatTag d;
  const float scale = -2 * 0.7978845608028654f * kLog2E;
  const FloatVector inner =
      hn::MulAdd(hn::Set(d, scale * 0.044715f), hn::Mul(x, x), hn::Set(d, scale));
  return OverOnePlusExp2(x, hn::Mul(x, inner));
}

// x / (1 + exp(-x))
HWY_INLINE FloatVector Silu(FloatVector x) {
  return OverOnePlusExp2(x, hn::Mul(x, hn::Set(FloatTag(), -kLog2E)));
}

// erf by Abramowitz and Stegun 7.1.26: absolute error at most 1.5e-7.
HWY_INLINE FloatVector Gelu(FloatVector x) {
  const FloatTag d;
  const FloatVector one = hn::Set(d, 1.0f);
  const FloatVector z = hn::Mul(hn::Abs(x), hn::Set(d, 0.7071067811865476f));
  const FloatVector t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.3275911f), z, one));
  FloatVector poly = hn::Set(d, 1.061405429f);
  for (const float coefficient : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) {
    poly = hn::MulAdd(poly, t, hn::Set(d, coefficient));
  }
  const FloatVector e = Exp2(hn::Mul(hn::Mul(z, z), hn::Set(d, -kLog2E)));
  const FloatVector tail = hn::Mul(hn::Mul(poly, t), e);  // 1 - erf(z)
  // x >= 0: x (1 - tail / 2); x < 0: x tail / 2
  const FloatVector half = hn::Mul(tail, hn::Set(d, 0.5f));
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), half, hn::Sub(one, half)));
}

// Not Max: that would lose a NaN.
HWY_INLINE FloatVector Relu(FloatVector x) {
  const FloatVector zero = hn::Zero(FloatTag());
  return hn::IfThenElse(hn::Lt(x, zero), zero, x);
}

HWY_INLINE FloatVector Relu6(FloatVector x) {
  const FloatVector most = hn::Set(FloatTag(), 6.0f);
  return hn::IfThenElse(hn::Gt(x, most), most, Relu(x));
}

// out = function(in) for a block of rows, which are a stride apart; out may be in.
template <typename Function>
HWY_INLINE void ForBlock(float* out, int64_t out_stride, const float* in, int64_t in_stride,
                         int64_t rows, int64_t columns, const Function& function) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = in + r * in_stride;
    float* to = out + r * out_stride;
    ForEachVector(columns, [&](int64_t c, auto vector)
                               HWY_ATTR { vector.store(function(vector.load(from + c)), to + c); });
  }
}

inline HWY_NOINLINE void Activate(float* out, int64_t out_stride, const float* in,
                                  int64_t in_stride, int64_t rows, int64_t columns,
                                  Activation activation) {
  const auto apply = [&](const auto& function) HWY_ATTR {
    ForBlock(out, out_stride, in, in_stride, rows, columns, function);
  };
  switch (activation) {
    case Activation::kNone:
      if (out != in) apply([](FloatVector x) HWY_ATTR { return x; });
      break;
    case Activation::kGeluTanh:
      apply([](FloatVector x) HWY_ATTR { return GeluTanh(x); });
      break;
    case Activation::kGelu:
      apply([](FloatVector x) HWY_ATTR { return Gelu(x); });
      break;
    case Activation::kRelu:
      apply([](FloatVector x) HWY_ATTR { return Relu(x); });
      break;
    case Activation::kRelu6:
      apply([](FloatVector x) HWY_ATTR { return Relu6(x); });
      break;
    case Activation::kSilu:
      apply([](FloatVector x) HWY_ATTR { return Silu(x); });
      break;
  }
}

// Applies the activation in place to a block whose rows are `stride` apart.
inline void Activate(float* block, int64_t stride, int64_t rows, int64_t columns,
                     Activation activation) {
  Activate(block, stride, block, stride, rows, columns, activation);
}

// A row as vectors: those that lie in memory, and its last elements, if they fill none, as one with
// zeros behind them.
struct RowVectors {
  HWY_INLINE RowVectors(const float* x_in, int64_t count) : x(x_in), rest(count % Lanes()) {
    whole = count - rest;
    if (rest == 0) return;
    hn::Store(hn::Zero(FloatTag()), FloatTag(), tail);
    std::memcpy(tail, x + whole, rest * sizeof(float));
  }

  // The sum of function(x); partial sums by lane, so every row is added in one order.
  template <typename Function>
  HWY_INLINE float sum(const Function& function) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    FloatVector a = hn::Zero(d);
    FloatVector b = hn::Zero(d);
    int64_t c = 0;
    for (; c + 2 * lanes <= whole; c += 2 * lanes) {
      a = hn::Add(a, function(hn::LoadU(d, x + c)));
      b = hn::Add(b, function(hn::LoadU(d, x + c + lanes)));
    }
    if (c < whole) a = hn::Add(a, function(hn::LoadU(d, x + c)));
    if (rest > 0) {
      const auto valid = hn::FirstN(d, static_cast<size_t>(rest));
      b = hn::Add(b, hn::IfThenElseZero(valid, function(hn::Load(d, tail))));
    }
    return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
  }

  // to = function(x); may be x.
  template <typename Function>
  HWY_INLINE void map(float* to, const Function& function) {
    const FloatTag d;
    for (int64_t c = 0; c < whole; c += Lanes()) {
      hn::StoreU(function(hn::LoadU(d, x + c)), d, to + c);
    }
    if (rest == 0) return;
    hn::Store(function(hn::Load(d, tail)), d, tail);
    std::memcpy(to + whole, tail, rest * sizeof(float));
  }

  const float* x;
  int64_t rest, whole;
  HWY_ALIGN float tail[HWY_MAX_BYTES / sizeof(float)];
};

// out = (x - mean) / sqrt(variance + epsilon) of each row, rows `features` apart in both; out may
// be x. Everything is taken from x less the row's first element: a row far from 0 beside its spread
// loses nothing (differences of near floats are exact), a constant row gives 0. `factors`, if
// given, gets 1 / sqrt(variance + epsilon) of each row.
inline HWY_NOINLINE void NormalizeRows(float* out, const float* x, int64_t rows, int64_t features,
                                       float epsilon, float* factors = nullptr) {
  const FloatTag d;
  for (int64_t r = 0; r < rows; ++r) {
    RowVectors row(x + r * features, features);
    const FloatVector first = hn::Set(d, x[r * features]);
    const auto shifted = [&](FloatVector v) HWY_ATTR { return hn::Sub(v, first); };
    const FloatVector mean = hn::Set(d, row.sum(shifted) / features);
    const auto centred = [&](FloatVector v) HWY_ATTR { return hn::Sub(shifted(v), mean); };
    const float variance = row.sum([&](FloatVector v) HWY_ATTR {
      const FloatVector c = centred(v);
      return hn::Mul(c, c);
    }) / features;
    const float scale = 1.0f / std::sqrt(variance + epsilon);
    if (factors != nullptr) factors[r] = scale;
    row.map(out + r * features,
            [&](FloatVector v) HWY_ATTR { return hn::Mul(centred(v), hn::Set(d, scale)); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_ACTIVATION_INL_H_
