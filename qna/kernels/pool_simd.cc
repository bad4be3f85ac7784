#include <limits>

#include "qna/kernels/network_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/pool_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/window_reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

struct NoWeight {};

template <bool kHasMask>
struct Largest {
  static constexpr bool kMasked = kHasMask;
  template <typename Vector>
  HWY_INLINE FloatVector start(int64_t, const Vector&) const {
    return hn::Set(FloatTag(), -std::numeric_limits<float>::infinity());
  }
  template <typename Vector>
  HWY_INLINE NoWeight load(int64_t, int64_t, const Vector&) const {
    return {};
  }
  // Not Max: that would lose a NaN.
  HWY_INLINE FloatVector step(FloatVector most, FloatVector value, NoWeight) const {
    return hn::IfThenElse(hn::Or(hn::Gt(value, most), hn::IsNaN(value)), value, most);
  }
  HWY_INLINE FloatVector finish(FloatVector most, bool any) const {
    return any ? most : hn::Zero(FloatTag());
  }
  HWY_INLINE bool takes(int64_t pixel) const { return mask[pixel] != 0; }

  const uint8_t* mask;
};

struct Mean {
  static constexpr bool kMasked = false;
  template <typename Vector>
  HWY_INLINE FloatVector start(int64_t, const Vector&) const {
    return hn::Zero(FloatTag());
  }
  template <typename Vector>
  HWY_INLINE NoWeight load(int64_t, int64_t, const Vector&) const {
    return {};
  }
  HWY_INLINE FloatVector step(FloatVector sum, FloatVector value, NoWeight) const {
    return hn::Add(sum, value);
  }
  HWY_INLINE FloatVector finish(FloatVector sum, bool) const {
    return hn::Div(sum, hn::Set(FloatTag(), taps));
  }

  float taps;
};

void MaxPool(const PoolArgs& args, Runtime& runtime) {
  if (args.mask == nullptr) {
    ReduceMap(args.shape, args.x, args.y, runtime, Largest<false>{nullptr});
  } else {
    ReduceMap(args.shape, args.x, args.y, runtime, Largest<true>{args.mask});
  }
}

void AveragePool(const PoolArgs& args, Runtime& runtime) {
  ReduceMap(args.shape, args.x, args.y, runtime, Mean{static_cast<float>(args.shape.taps())});
}

constexpr PoolKernels kPoolKernels = {&MaxPool, &AveragePool};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(PoolKernels, pool_kernels, kPoolKernels)
}  // namespace qna::kernels
#endif
