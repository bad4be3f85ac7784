// Given maps of values and scores as a source of packed rows.

#if defined(QNA_KERNELS_MAPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_MAPS_INL_H_
#undef QNA_KERNELS_MAPS_INL_H_
#else
#define QNA_KERNELS_MAPS_INL_H_
#endif

#include "qna/kernels/rows-inl.h"
#include "qna/kernels/window_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// Packs rows of given scores and values.
template <typename T>
struct ReadMaps {
  void fill(const Rectangle& r, float* records, const Rectangle&) {
    for (int64_t y = 0; y < r.rows; ++y)
      for (int64_t x = 0; x < r.columns; ++x) {
        const int64_t pixel = (r.image * height + r.row + y) * width + r.column + x;
        float* record = records + (y * r.columns + x) * layout.record();
        value_map.pack(record, values + pixel * value_stride);
        score_map.pack(record + layout.value_floats, scores + pixel * score_stride);
      }
  }
  const PackedLayout& layout;
  const ChannelMap& value_map;
  const ChannelMap& score_map;
  const T* values;
  int64_t value_stride;
  const T* scores;
  int64_t score_stride;
  const uint8_t* mask;
  int64_t height, width;
};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_MAPS_INL_H_
