// The exponential for activations and softmax.
//
// Why not Highway's: that one is for all arguments and about twice as many operations. Measured, it
// was 8 % of a network's time in GELU alone.

#if defined(QNA_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_EXP_INL_H_
#undef QNA_KERNELS_EXP_INL_H_
#else
#define QNA_KERNELS_EXP_INL_H_
#endif

#include "qna/kernels/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

constexpr float kLog2E = 1.44269504088896341f;

// 2^x to 1.5e-7 of its value for x in [-127, 128]: 0 at -127 (no subnormal numbers), infinite at
// 128.
HWY_INLINE FloatVector Exp2Of(FloatVector x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const FloatVector whole = hn::Round(x);
  const FloatVector f = hn::Sub(x, whole);  // [-1/2, 1/2]
  // The minimax polynomial of degree 5, relative error 7.5e-8.
  FloatVector p = hn::Set(d, 0.001327647198300468f);
  for (const float c : {0.009675541334291871f, 0.05550713273527477f, 0.24022119723845145f,
                        0.6931469670647474f, 1.0000000716546837f}) {
    p = hn::MulAdd(p, f, hn::Set(d, c));
  }
  // 2^whole by its bits: exponent 0 is the number 0, exponent 255 infinity.
  const auto exponent = hn::Add(hn::ConvertTo(di, whole), hn::Set(di, 127));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(exponent)));
}

// For every x: 0 up to -127, infinite from 128 on. A NaN gives some number.
HWY_INLINE FloatVector Exp2(FloatVector x) {
  const FloatTag d;
  return Exp2Of(hn::Min(hn::Max(x, hn::Set(d, -127.0f)), hn::Set(d, 128.0f)));
}

// The same for x of at most 0, as a softmax has them; a NaN stays one.
HWY_INLINE FloatVector Exp2Below(FloatVector x) {
  const FloatTag d;
  const FloatVector low = hn::Set(d, -127.0f);
  return Exp2Of(hn::IfThenElse(hn::Lt(x, low), low, x));
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_EXP_INL_H_
