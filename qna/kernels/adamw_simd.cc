#include "qna/kernels/adamw_simd.h"

#include <algorithm>
#include <cmath>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/adamw_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// Numbers that one task takes, of one parameter. Sums of squares are by such parts.
constexpr int64_t kPart = 1 << 14;

struct AdamWPart {
  const AdamWParameter* parameter;
  int64_t begin, count;
};

inline std::vector<AdamWPart> Parts(std::span<const AdamWParameter> parameters) {
  std::vector<AdamWPart> parts;
  for (const AdamWParameter& p : parameters)
    for (int64_t begin = 0; begin < p.count; begin += kPart) {
      parts.push_back({&p, begin, std::min(kPart, p.count - begin)});
    }
  return parts;
}

double GradientSquareSum(std::span<const AdamWParameter> parameters, Runtime& runtime) {
  const std::vector<AdamWPart> parts = Parts(parameters);
  std::vector<double> sums(parts.size(), 0.0);
  runtime.for_each(static_cast<int64_t>(parts.size()), [&](int64_t task, int) HWY_ATTR {
    const AdamWPart& part = parts[task];
    if (part.parameter->gradient == nullptr) return;
    const FloatTag d;
    const float* gradient = part.parameter->gradient + part.begin;
    FloatVector sum = hn::Zero(d);
    ForEachVector(part.count, [&](int64_t i, auto vector) HWY_ATTR {
      const FloatVector g = vector.load(gradient + i);
      sum = hn::MulAdd(g, g, sum);
    });
    sums[task] = hn::GetLane(hn::SumOfLanes(d, sum));
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

void AdamW(const AdamWArgs& args, Runtime& runtime) {
  const std::vector<AdamWPart> parts = Parts(args.parameters);
  runtime.for_each(static_cast<int64_t>(parts.size()), [&](int64_t task, int) HWY_ATTR {
    const AdamWPart& part = parts[task];
    const AdamWParameter& p = *part.parameter;
    const auto set = [](double value)
                         HWY_ATTR { return hn::Set(FloatTag(), static_cast<float>(value)); };
    const double correction1 = 1 - std::pow(args.betas[0], p.step);
    const double correction2 = 1 - std::pow(args.betas[1], p.step);
    const FloatVector kept = set(1 - p.lr * p.decay);
    const FloatVector rate = set(-p.lr / correction1);
    const FloatVector root = set(1 / std::sqrt(correction2));
    const FloatVector factor = set(args.gradient_factor);
    const FloatVector share1 = set(1 - args.betas[0]);
    const FloatVector share2 = set(1 - args.betas[1]);
    const FloatVector epsilon = set(args.epsilon);
    const FloatVector average_share = set(1 - args.average_decay);
    const auto lerp = [](FloatVector from, FloatVector to, FloatVector share)
                          HWY_ATTR { return hn::MulAdd(share, hn::Sub(to, from), from); };
    ForEachVector(part.count, [&](int64_t i, auto vector) HWY_ATTR {
      const int64_t at = part.begin + i;
      FloatVector weight = vector.load(p.weight + at);
      if (p.gradient != nullptr) {
        const FloatVector gradient = hn::Mul(factor, vector.load(p.gradient + at));
        const FloatVector mean = lerp(vector.load(p.mean + at), gradient, share1);
        const FloatVector square =
            lerp(vector.load(p.square_mean + at), hn::Mul(gradient, gradient), share2);
        const FloatVector divisor = hn::MulAdd(hn::Sqrt(square), root, epsilon);
        weight = hn::MulAdd(rate, hn::Div(mean, divisor), hn::Mul(kept, weight));
        vector.store(mean, p.mean + at);
        vector.store(square, p.square_mean + at);
        vector.store(weight, p.weight + at);
      }
      if (p.average != nullptr) {
        vector.store(lerp(vector.load(p.average + at), weight, average_share), p.average + at);
      }
    });
  });
}

constexpr AdamWKernels kAdamWKernels = {&GradientSquareSum, &AdamW};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(AdamWKernels, adamw_kernels, kAdamWKernels)
}  // namespace qna::kernels
#endif
