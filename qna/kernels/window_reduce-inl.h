// Sums and other reductions of each feature over the taps of a window.

#if defined(QNA_KERNELS_WINDOW_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_WINDOW_REDUCE_INL_H_
#undef QNA_KERNELS_WINDOW_REDUCE_INL_H_
#else
#define QNA_KERNELS_WINDOW_REDUCE_INL_H_
#endif

#include "qna/kernels/convolution.h"
#include "qna/kernels/convolution_taps.h"
#include "qna/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// What is done with the taps that lie inside the map, in their order. A rule has
//   start(c, vector)          the result so far before the first tap
//   load(tap, c, vector)      what a tap needs besides its value, the same for all windows
//   step(so_far, value, with) the result so far with one more tap
//   finish(so_far, any)       any: whether there was a tap
//   kMasked, takes(pixel)     whether pixels are asked if they take part

// kPixels windows side by side whose taps are all inside, or not, at the same places.
template <int kPixels, typename Rule>
HWY_INLINE void ReduceWindows(const ConvolutionShape& s, const float* x, int64_t image, int64_t top,
                              int64_t left, TapRange rows, TapRange columns, float* y,
                              const Rule& rule) {
  const int64_t features = s.in_features;
  const int64_t next = s.stride_w * features;  // from window to window
  ForEachVector(features, [&](int64_t c, auto vector) HWY_ATTR {
    FloatVector results[kPixels];
    QNA_UNROLL
    for (int p = 0; p < kPixels; ++p) results[p] = rule.start(c, vector);
    bool any = !Rule::kMasked && rows.count() > 0 && columns.count() > 0;
    for (int64_t i = rows.first; i < rows.end; ++i) {
      const int64_t row = (image * s.height + top + i * s.dilation_h) * s.width + left;
      for (int64_t j = columns.first; j < columns.end; ++j) {
        const int64_t pixel = row + j * s.dilation_w;
        if constexpr (Rule::kMasked) {
          static_assert(kPixels == 1);
          if (!rule.takes(pixel)) continue;
          any = true;
        }
        const float* from = x + pixel * features + c;
        const auto with = rule.load(i * s.kernel_w + j, c, vector);
        QNA_UNROLL
        for (int p = 0; p < kPixels; ++p) {
          results[p] = rule.step(results[p], vector.load(from + p * next), with);
        }
      }
    }
    QNA_UNROLL
    for (int p = 0; p < kPixels; ++p) {
      vector.store(rule.finish(results[p], any), y + p * features + c);
    }
  });
}

// One row of windows.
template <typename Rule>
HWY_NOINLINE void ReduceRow(const ConvolutionShape& s, const float* x, int64_t row, float* y,
                            const Rule& rule) {
  const int64_t image = row / s.out_height;
  const int64_t top = row % s.out_height * s.stride_h - s.pad_top;
  const TapRange rows = taps_inside(top, s.kernel_h, s.dilation_h, s.height);
  const auto columns = [&](int64_t j) {
    return taps_inside(j * s.stride_w - s.pad_left, s.kernel_w, s.dilation_w, s.width);
  };
  // Windows side by side share what a tap needs: four of them, if both ends are whole.
  constexpr int kTogether = 4;
  for (int64_t j = 0; j < s.out_width;) {
    float* to = y + (row * s.out_width + j) * s.in_features;
    const int64_t left = j * s.stride_w - s.pad_left;
    const int64_t last = j + kTogether - 1;
    if constexpr (!Rule::kMasked) {
      if (last < s.out_width && columns(j).count() == s.kernel_w &&
          columns(last).count() == s.kernel_w) {
        ReduceWindows<kTogether>(s, x, image, top, left, rows, columns(j), to, rule);
        j += kTogether;
        continue;
      }
    }
    ReduceWindows<1>(s, x, image, top, left, rows, columns(j), to, rule);
    ++j;
  }
}

template <typename Rule>
void ReduceMap(const ConvolutionShape& s, const float* x, float* y, Runtime& runtime,
               const Rule& rule) {
  runtime.for_each(s.batch * s.out_height,
                   [&](int64_t row, int) { ReduceRow(s, x, row, y, rule); });
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_WINDOW_REDUCE_INL_H_
