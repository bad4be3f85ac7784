// Rows of a map's pixels, packed (see packed_layout.h) and unpacked.

#if defined(QNA_KERNELS_PIXEL_MAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_PIXEL_MAP_INL_H_
#undef QNA_KERNELS_PIXEL_MAP_INL_H_
#else
#define QNA_KERNELS_PIXEL_MAP_INL_H_
#endif

#include "qna/kernels/packed_layout.h"
#include "qna/kernels/rows-inl.h"
#include "qna/kernels/sasa.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

template <typename T>
struct PackedMap {
  PackedMap(const PixelMap<T>& map_in, const PackedLayout& layout)
      : map(map_in), channels(layout.value_sources(map.layout)) {}

  // Pixels [first, first + count). Where `mask`, of these pixels, is 0 (it may be null) they are 0.
  void pack(int64_t first, int64_t count, const uint8_t* mask, float* packed) const {
    for (int64_t n = 0; n < count; ++n, packed += channels.count()) {
      if (mask != nullptr && mask[n] == 0) {
        std::fill_n(packed, channels.count(), 0.0f);
      } else {
        channels.pack(packed, map.data + (first + n) * map.layout.pixel_stride);
      }
    }
  }

  void unpack(int64_t first, int64_t count, const float* packed) const {
    for (int64_t n = 0; n < count; ++n, packed += channels.count()) {
      channels.unpack(map.data + (first + n) * map.layout.pixel_stride, packed);
    }
  }

  PixelMap<T> map;
  ChannelMap channels;
};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_PIXEL_MAP_INL_H_
