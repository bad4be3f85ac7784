#include "qna/kernels/network_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/bilinear_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// Where pixel `out` of the large map lies in the small one: (out + 1/2) / factor - 1/2, which is
// (2 out + 1 - factor) / (2 factor), at least 0.
struct Neighbours {
  Neighbours(int64_t out, int64_t size, int64_t factor) {
    const int64_t place = std::max<int64_t>(0, 2 * out + 1 - factor);
    first = place / (2 * factor);
    second = std::min(first + 1, size - 1);
    weight = static_cast<float>(place % (2 * factor)) / static_cast<float>(2 * factor);
  }
  int64_t first, second;
  float weight;  // of the second
};

// One row of the large map.
inline void EnlargeRow(const BilinearArgs& args, int64_t task) {
  const int64_t rows = args.height * args.factor;
  const int64_t columns = args.width * args.factor;
  const int64_t row_floats = args.width * args.features;
  const Neighbours row(task % rows, args.height, args.factor);
  const float* image = args.x + task / rows * args.height * row_floats;
  const float* above = image + row.first * row_floats;
  const float* below = image + row.second * row_floats;
  float* to = args.y + task * columns * args.features;
  for (int64_t j = 0; j < columns; ++j, to += args.features) {
    const Neighbours column(j, args.width, args.factor);
    const int64_t left = column.first * args.features;
    const int64_t right = column.second * args.features;
    const FloatTag d;
    const FloatVector above_left = hn::Set(d, (1 - row.weight) * (1 - column.weight));
    const FloatVector above_right = hn::Set(d, (1 - row.weight) * column.weight);
    const FloatVector below_left = hn::Set(d, row.weight * (1 - column.weight));
    const FloatVector below_right = hn::Set(d, row.weight * column.weight);
    ForEachVector(args.features, [&](int64_t c, auto vector) HWY_ATTR {
      FloatVector sum = hn::Mul(vector.load(above + left + c), above_left);
      sum = hn::MulAdd(vector.load(above + right + c), above_right, sum);
      sum = hn::MulAdd(vector.load(below + left + c), below_left, sum);
      vector.store(hn::MulAdd(vector.load(below + right + c), below_right, sum), to + c);
    });
  }
}

void Bilinear(const BilinearArgs& args, Runtime& runtime) {
  runtime.for_each(args.batch * args.height * args.factor,
                   [&](int64_t task, int) { EnlargeRow(args, task); });
}

constexpr BilinearKernel kBilinearKernel = {&Bilinear};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(BilinearKernel, bilinear_kernel, kBilinearKernel)
}  // namespace qna::kernels
#endif
