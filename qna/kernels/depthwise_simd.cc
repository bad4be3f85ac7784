#include "qna/kernels/network_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/depthwise_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/window_reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

struct WeightedSum {
  static constexpr bool kMasked = false;
  HWY_INLINE FloatVector start() const { return hn::Zero(FloatTag()); }
  template <typename Vector>
  HWY_INLINE FloatVector load(int64_t tap, int64_t c, const Vector& vector) const {
    return vector.load(weight + tap * features + c);
  }
  HWY_INLINE FloatVector step(FloatVector sum, FloatVector value, FloatVector factor) const {
    return hn::MulAdd(value, factor, sum);
  }
  HWY_INLINE FloatVector finish(FloatVector sum, bool) const { return sum; }

  const float* weight;
  int64_t features;
};

void Depthwise(const DepthwiseArgs& args, Runtime& runtime) {
  ReduceMap(args.shape, args.x, args.y, runtime, WeightedSum{args.weight, args.shape.in_features});
}

constexpr DepthwiseKernel kDepthwiseKernel = {&Depthwise};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(DepthwiseKernel, depthwise_kernel, kDepthwiseKernel)
}  // namespace qna::kernels
#endif
