
#include "qna/kernels/network_simd.h"
#include "qna/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/layer_norm_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// y = y * weight + bias, of each row; null is 1 and 0.
inline void ScaleShift(float* y, int64_t rows, int64_t features, const float* weight,
                       const float* bias) {
  if (weight == nullptr && bias == nullptr) return;
  for (int64_t r = 0; r < rows; ++r, y += features) {
    ForEachVector(features, [&](int64_t c, auto vector) HWY_ATTR {
      const FloatTag d;
      const FloatVector factor = weight == nullptr ? hn::Set(d, 1.0f) : vector.load(weight + c);
      const FloatVector shift = bias == nullptr ? hn::Zero(d) : vector.load(bias + c);
      vector.store(hn::MulAdd(vector.load(y + c), factor, shift), y + c);
    });
  }
}

void LayerNorm(const LayerNormArgs& args, Runtime& runtime) {
  constexpr int64_t kRows = 16;  // still in the first or second cache for their scale and shift
  runtime.for_each((args.rows + kRows - 1) / kRows, [&](int64_t task, int) {
    const int64_t first = task * kRows;
    const int64_t rows = std::min(kRows, args.rows - first);
    float* y = args.y + first * args.features;
    NormalizeRows(y, args.x + first * args.features, rows, args.features, args.epsilon);
    ScaleShift(y, rows, args.features, args.weight, args.bias);
  });
}

// Positions whose sums make one part of the whole. Fixed, so that results do not depend on the
// number of workers.
constexpr int64_t kPartPositions = 64;

void NormMean(const NormMeanArgs& args, Runtime& runtime) {
  const int64_t features = args.features;
  const int64_t parts = (args.positions + kPartPositions - 1) / kPartPositions;
  double* sums = nullptr;     // [B, parts, features]
  int64_t* counts = nullptr;  // [B, parts]
  float** rows = nullptr;     // one for each worker
  const auto carve = [&](ScratchArena arena) {
    sums = arena.take<double>(args.batch * parts * features);
    counts = arena.take<int64_t>(args.batch * parts);
    rows = arena.take_each(runtime.workers(),
                           [&](ScratchArena& a) { return a.take<float>(features); });
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  runtime.for_each(args.batch * parts, [&](int64_t task, int worker) {
    double* to = sums + task * features;
    std::fill_n(to, features, 0.0);
    counts[task] = 0;
    const int64_t begin = task % parts * kPartPositions;
    const int64_t end = std::min(begin + kPartPositions, args.positions);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = task / parts * args.positions + i;
      if (args.mask != nullptr && args.mask[n] == 0) continue;
      ++counts[task];
      const float* row = args.x + n * features;
      if (args.normalize) {
        NormalizeRows(rows[worker], row, 1, features, args.epsilon);
        row = rows[worker];
      }
      AddToSums(to, row, features);
    }
  });
  runtime.for_each(args.batch, [&](int64_t image, int) {
    int64_t count = 0;
    for (int64_t i = 0; i < parts; ++i) count += counts[image * parts + i];
    for (int64_t c = 0; c < features; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < parts; ++i) sum += sums[(image * parts + i) * features + c];
      const double weight = args.weight == nullptr ? 1 : args.weight[c];
      const double bias = args.bias == nullptr ? 0 : args.bias[c];
      const double mean = sum / static_cast<double>(count);
      args.y[image * features + c] = count == 0 ? 0.0f : static_cast<float>(mean * weight + bias);
    }
  });
}

constexpr LayerNormKernels kLayerNormKernels = {&LayerNorm, &NormMean};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(LayerNormKernels, layer_norm_kernels, kLayerNormKernels)
}  // namespace qna::kernels
#endif
