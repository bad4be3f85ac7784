// Activations with their slopes, and LayerNorm's gradient, on rows in cache.

#if defined(QNA_KERNELS_ACTIVATION_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_ACTIVATION_GRADIENT_INL_H_
#undef QNA_KERNELS_ACTIVATION_GRADIENT_INL_H_
#else
#define QNA_KERNELS_ACTIVATION_GRADIENT_INL_H_
#endif

#include "qna/kernels/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

struct ValueAndSlope {
  FloatVector value;
  FloatVector slope;
};

// x / (1 + 2^e) and its slope, where e(x) = -u(x) / log 2 and du = u'(x): with p = 1 / (1 + 2^e),
// the slope is p + x p (1 - p) u'.
HWY_INLINE ValueAndSlope SigmoidTimes(FloatVector x, FloatVector e, FloatVector du) {
  const FloatVector one = hn::Set(FloatTag(), 1.0f);
  const FloatVector p = hn::Div(one, hn::Add(one, Exp2(e)));
  const FloatVector value = hn::Mul(x, p);
  return {value, hn::MulAdd(hn::Mul(value, hn::Sub(one, p)), du, p)};
}

HWY_INLINE ValueAndSlope GeluTanhWithSlope(FloatVector x) {
  const FloatTag d;
  const float c = 2 * 0.7978845608028654f;  // u = c (x + 0.044715 x^3)
  const FloatVector square = hn::Mul(x, x);
  const FloatVector e =
      hn::Mul(x, hn::MulAdd(hn::Set(d, -c * kLog2E * 0.044715f), square, hn::Set(d, -c * kLog2E)));
  return SigmoidTimes(x, e, hn::MulAdd(hn::Set(d, 3 * c * 0.044715f), square, hn::Set(d, c)));
}

HWY_INLINE ValueAndSlope SiluWithSlope(FloatVector x) {
  const FloatTag d;
  return SigmoidTimes(x, hn::Mul(x, hn::Set(d, -kLog2E)), hn::Set(d, 1.0f));
}

// The slope is Phi(x) + x phi(x), of the normal distribution and its density.
HWY_INLINE ValueAndSlope GeluWithSlope(FloatVector x) {
  const FloatTag d;
  const FloatVector value = Gelu(x);
  const FloatVector density = hn::Mul(hn::Set(d, 0.3989422804014327f),
                                      Exp2(hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f * kLog2E))));
  // Phi = value / x, but for 0.
  const FloatVector phi =
      hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Set(d, 0.5f), hn::Div(value, x));
  return {value, hn::MulAdd(x, density, phi)};
}

HWY_INLINE ValueAndSlope ReluWithSlope(FloatVector x) {
  const FloatTag d;
  const FloatVector zero = hn::Zero(d);
  return {Relu(x), hn::IfThenElseZero(hn::Gt(x, zero), hn::Set(d, 1.0f))};
}

HWY_INLINE ValueAndSlope Relu6WithSlope(FloatVector x) {
  const FloatTag d;
  const auto inside = hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, hn::Set(d, 6.0f)));
  return {Relu6(x), hn::IfThenElseZero(inside, hn::Set(d, 1.0f))};
}

// Calls use(function), where function(x) gives the activation's value and slope.
template <typename Use>
HWY_INLINE void WithSlope(Activation activation, const Use& use) {
  switch (activation) {
    case Activation::kNone:
      use([](FloatVector x) HWY_ATTR { return ValueAndSlope{x, hn::Set(FloatTag(), 1.0f)}; });
      break;
    case Activation::kGeluTanh:
      use([](FloatVector x) HWY_ATTR { return GeluTanhWithSlope(x); });
      break;
    case Activation::kGelu:
      use([](FloatVector x) HWY_ATTR { return GeluWithSlope(x); });
      break;
    case Activation::kRelu:
      use([](FloatVector x) HWY_ATTR { return ReluWithSlope(x); });
      break;
    case Activation::kRelu6:
      use([](FloatVector x) HWY_ATTR { return Relu6WithSlope(x); });
      break;
    case Activation::kSilu:
      use([](FloatVector x) HWY_ATTR { return SiluWithSlope(x); });
      break;
  }
}

// The sum of a b over a row, in one order.
inline HWY_NOINLINE float DotRow(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                                 int64_t count) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  FloatVector sum0 = hn::Zero(d);
  FloatVector sum1 = hn::Zero(d);
  int64_t c = 0;
  for (; c + 2 * lanes <= count; c += 2 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, a + c), hn::LoadU(d, b + c), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, a + c + lanes), hn::LoadU(d, b + c + lanes), sum1);
  }
  if (c + lanes <= count) {
    sum0 = hn::MulAdd(hn::LoadU(d, a + c), hn::LoadU(d, b + c), sum0);
    c += lanes;
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; c < count; ++c) sum += a[c] * b[c];
  return sum;
}

// dx = residual + factor (dn - mean(dn) - n mean(dn n)) of each row: the gradient through
// n = (x - mean(x)) factor. Rows are `features` apart in all; dx may be dn or residual, which may
// be null.
inline HWY_NOINLINE void NormBackwardRows(float* dx, const float* residual, const float* dn,
                                          const float* n, const float* factors, int64_t rows,
                                          int64_t features) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * features;
    const auto same = [](FloatVector v) HWY_ATTR { return v; };
    const float mean = RowVectors(dn + at, features).sum(same) / features;
    const float product = DotRow(dn + at, n + at, features) / features;
    const FloatVector mean_vector = hn::Set(d, mean);
    const FloatVector product_vector = hn::Set(d, product);
    const FloatVector factor = hn::Set(d, factors[r]);
    int64_t c = 0;
    for (; c + lanes <= features; c += lanes) {
      const FloatVector centred = hn::NegMulAdd(hn::LoadU(d, n + at + c), product_vector,
                                                hn::Sub(hn::LoadU(d, dn + at + c), mean_vector));
      const FloatVector base = residual == nullptr ? hn::Zero(d) : hn::LoadU(d, residual + at + c);
      hn::StoreU(hn::MulAdd(factor, centred, base), d, dx + at + c);
    }
    for (; c < features; ++c) {
      const float base = residual == nullptr ? 0.0f : residual[at + c];
      dx[at + c] = base + factors[r] * (dn[at + c] - mean - n[at + c] * product);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_ACTIVATION_GRADIENT_INL_H_
