// The packed keys and values under the current row of windows: a ring of input rows.

#if defined(QNA_KERNELS_SASA_RING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_SASA_RING_INL_H_
#undef QNA_KERNELS_SASA_RING_INL_H_
#else
#define QNA_KERNELS_SASA_RING_INL_H_
#endif

#include "qna/kernels/pixel_map-inl.h"
#include "qna/kernels/sasa-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// The input row y is row y % rows of the ring.
struct SasaRing {
  static SasaRing carve(ScratchArena& arena, const SasaPlan& plan, int64_t rows, int64_t columns) {
    const int64_t row_floats = columns * plan.layout.value_floats;
    return {rows,
            row_floats,
            arena.take<float>(rows * row_floats),
            arena.take<float>(rows * row_floats),
            arena.take<const float*>(plan.shape.kernel_h),
            arena.take<const float*>(plan.shape.kernel_h),
            arena.take<const uint8_t*>(plan.shape.kernel_h)};
  }

  // Brings `count` pixels from `first` on in as row y.
  template <typename T>
  void fill(int64_t y, int64_t first, int64_t count, const PackedMap<const T>& k,
            const PackedMap<const T>& v, const uint8_t* mask) const {
    const uint8_t* row_mask = mask == nullptr ? nullptr : mask + first;
    k.pack(first, count, row_mask, keys + y % rows * row_floats);
    v.pack(first, count, row_mask, values + y % rows * row_floats);
  }

  // The rows under the windows whose first tap lies in row `top`. The ring's columns start at
  // `origin`.
  SasaRows under(const SasaPlan& plan, int64_t image, int64_t top, int64_t origin,
                 const uint8_t* mask) const {
    const WindowShape& s = plan.shape;
    const TapRange range = valid_taps(top, s.kernel_h, s.dilation_h, s.height);
    for (int64_t t = range.begin; t < range.end; ++t) {
      const int64_t y = top + t * s.dilation_h;
      key_rows[t - range.begin] = keys + y % rows * row_floats;
      value_rows[t - range.begin] = values + y % rows * row_floats;
      if (mask != nullptr) {
        mask_rows[t - range.begin] = mask + (image * s.height + y) * s.width + origin;
      }
    }
    return {key_rows, value_rows, mask == nullptr ? nullptr : mask_rows, range.begin,
            range.end - range.begin};
  }

  int64_t rows;
  int64_t row_floats;
  float* keys;
  float* values;
  const float** key_rows;
  const float** value_rows;
  const uint8_t** mask_rows;
};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_SASA_RING_INL_H_
