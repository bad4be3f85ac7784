#include "qna/kernels/network_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/depthwise_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/activation-inl.h"
#include "qna/kernels/window_reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

template <Activation kActivation>
struct WeightedSum {
  static constexpr bool kMasked = false;
  template <typename Vector>
  HWY_INLINE FloatVector start(int64_t c, const Vector& vector) const {
    return bias == nullptr ? hn::Zero(FloatTag()) : vector.load(bias + c);
  }
  template <typename Vector>
  HWY_INLINE FloatVector load(int64_t tap, int64_t c, const Vector& vector) const {
    return vector.load(weight + tap * features + c);
  }
  HWY_INLINE FloatVector step(FloatVector sum, FloatVector value, FloatVector factor) const {
    return hn::MulAdd(value, factor, sum);
  }
  HWY_INLINE FloatVector finish(FloatVector sum, bool) const {
    if constexpr (kActivation == Activation::kRelu) return Relu(sum);
    if constexpr (kActivation == Activation::kRelu6) return Relu6(sum);
    return sum;
  }

  const float* weight;
  const float* bias;  // or null
  int64_t features;
};

template <Activation kActivation>
void DepthwiseWith(const DepthwiseArgs& args, Runtime& runtime) {
  ReduceMap(args.shape, args.x, args.y, runtime,
            WeightedSum<kActivation>{args.weight, args.bias, args.shape.in_features});
}

void Depthwise(const DepthwiseArgs& args, Runtime& runtime) {
  switch (args.activation) {
    case Activation::kRelu:
      return DepthwiseWith<Activation::kRelu>(args, runtime);
    case Activation::kRelu6:
      return DepthwiseWith<Activation::kRelu6>(args, runtime);
    default:
      return DepthwiseWith<Activation::kNone>(args, runtime);
  }
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
