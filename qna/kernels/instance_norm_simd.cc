#include "qna/kernels/network_simd.h"
#include "qna/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/instance_norm_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// Positions whose sums make one part of the whole. Fixed, so that results do not depend on the
// number of workers.
constexpr int64_t kChunkPositions = 256;

// What each image's features have, [B, features].
struct FeatureStatistics {
  void carve(ScratchArena& arena, int64_t count) {
    for (float** values : {&mean, &mean_rest, &scale}) *values = arena.take<float>(count);
  }
  FeatureStatistics of(int64_t image, int64_t features) const {
    const int64_t first = image * features;
    return {mean + first, mean_rest + first, scale + first};
  }
  float* mean;
  float* mean_rest;  // of the mean, what float32 does not hold
  float* scale;      // weight / sqrt(variance + epsilon)
};

inline void SumValues(double* sums, const float* x, int64_t rows, int64_t features) {
  std::fill_n(sums, features, 0.0);
  for (int64_t n = 0; n < rows; ++n) AddToSums(sums, x + n * features, features);
}

// Of the differences from the mean.
inline void SumSquares(double* HWY_RESTRICT sums, const float* HWY_RESTRICT x,
                       const FeatureStatistics& image, int64_t rows, int64_t features) {
  const float* HWY_RESTRICT mean = image.mean;
  const float* HWY_RESTRICT rest = image.mean_rest;
  std::fill_n(sums, features, 0.0);
  for (int64_t n = 0; n < rows; ++n, x += features)
    for (int64_t c = 0; c < features; ++c) {
      const float centred = x[c] - mean[c] - rest[c];
      sums[c] += centred * centred;
    }
}

// y may be x.
inline void Normalize(float* y, const float* x, const FeatureStatistics& image, const float* bias,
                      int64_t rows, int64_t features) {
  for (int64_t n = 0; n < rows; ++n) {
    const float* from = x + n * features;
    float* to = y + n * features;
    ForEachVector(features, [&](int64_t c, auto vector) HWY_ATTR {
      const FloatVector centred =
          hn::Sub(hn::Sub(vector.load(from + c), vector.load(image.mean + c)),
                  vector.load(image.mean_rest + c));
      const FloatVector shift = bias == nullptr ? hn::Zero(FloatTag()) : vector.load(bias + c);
      vector.store(hn::MulAdd(centred, vector.load(image.scale + c), shift), to + c);
    });
  }
}

void InstanceNorm(const InstanceNormArgs& args, Runtime& runtime) {
  const int64_t features = args.features;
  const int64_t chunks = (args.positions + kChunkPositions - 1) / kChunkPositions;
  FeatureStatistics statistics;
  double* sums = nullptr;  // [B, chunks, features]
  const auto carve = [&](ScratchArena arena) {
    statistics.carve(arena, args.batch * features);
    sums = arena.take<double>(args.batch * chunks * features);
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  // use(chunk, image, its first float, rows) for each chunk of each image.
  const auto for_each_chunk = [&](const auto& use) {
    runtime.for_each(args.batch * chunks, [&](int64_t task, int) {
      const int64_t begin = task % chunks * kChunkPositions;
      use(task, task / chunks, (task / chunks * args.positions + begin) * features,
          std::min(kChunkPositions, args.positions - begin));
    });
  };
  // The mean over an image's positions of what `sums` holds.
  const auto mean_of_sums = [&](int64_t image, int64_t c) {
    double sum = 0;
    for (int64_t i = 0; i < chunks; ++i) sum += sums[(image * chunks + i) * features + c];
    return sum / static_cast<double>(args.positions);
  };
  if (chunks == 0) return;

  for_each_chunk([&](int64_t task, int64_t, int64_t at, int64_t rows) {
    SumValues(sums + task * features, args.x + at, rows, features);
  });
  runtime.for_each(args.batch, [&](int64_t image, int) {
    const FeatureStatistics to = statistics.of(image, features);
    for (int64_t c = 0; c < features; ++c) {
      const double mean = mean_of_sums(image, c);
      to.mean[c] = static_cast<float>(mean);
      to.mean_rest[c] = static_cast<float>(mean - to.mean[c]);
    }
  });
  for_each_chunk([&](int64_t task, int64_t image, int64_t at, int64_t rows) {
    SumSquares(sums + task * features, args.x + at, statistics.of(image, features), rows, features);
  });
  runtime.for_each(args.batch, [&](int64_t image, int) {
    const FeatureStatistics to = statistics.of(image, features);
    for (int64_t c = 0; c < features; ++c) {
      const double weight = args.weight == nullptr ? 1 : args.weight[c];
      to.scale[c] = static_cast<float>(weight / std::sqrt(mean_of_sums(image, c) + args.epsilon));
    }
  });
  for_each_chunk([&](int64_t, int64_t image, int64_t at, int64_t rows) {
    // The activation finds in the cache what was just written.
    constexpr int64_t kStep = 16;
    for (int64_t n = 0; n < rows; n += kStep) {
      const int64_t count = std::min(kStep, rows - n);
      float* y = args.y + at + n * features;
      Normalize(y, args.x + at + n * features, statistics.of(image, features), args.bias, count,
                features);
      Activate(y, features, count, features, args.activation);
    }
  });
}

constexpr InstanceNormKernel kInstanceNormKernel = {&InstanceNorm};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(InstanceNormKernel, instance_norm_kernel, kInstanceNormKernel)
}  // namespace qna::kernels
#endif
