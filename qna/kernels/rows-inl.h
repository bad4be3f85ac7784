// Rows of pixels between storage (any layout, 16 or 32 bits) and packed float32.

#if defined(QNA_KERNELS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_ROWS_INL_H_
#undef QNA_KERNELS_ROWS_INL_H_
#else
#define QNA_KERNELS_ROWS_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <vector>

#include "hwy/highway.h"
#include "qna/base/half.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void WidenRow(float* HWY_RESTRICT out, const T* HWY_RESTRICT in, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_float(in[i]);
}

template <typename T>
HWY_INLINE void NarrowRow(T* HWY_RESTRICT out, const float* HWY_RESTRICT in, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = from_float<T>(in[i]);
}

// A permutation of a pixel's channels: packed[i] comes from (goes to) stored[sources[i]], or is a
// lane that holds nothing where that is -1.
struct ChannelMap {
  explicit ChannelMap(std::vector<int32_t> sources_in) : sources(std::move(sources_in)) {
    for (size_t i = 0; i < sources.size(); ++i) identity &= sources[i] == static_cast<int32_t>(i);
  }
  std::vector<int32_t> sources;
  bool identity = true;
  int64_t count() const { return static_cast<int64_t>(sources.size()); }

  template <typename T>
  void pack(float* HWY_RESTRICT packed, const T* HWY_RESTRICT stored) const {
    if (identity) return WidenRow(packed, stored, count());
    for (int64_t i = 0; i < count(); ++i) {
      packed[i] = sources[i] < 0 ? 0.0f : to_float(stored[sources[i]]);
    }
  }

  template <typename T>
  void unpack(T* HWY_RESTRICT stored, const float* HWY_RESTRICT packed) const {
    if (identity) return NarrowRow(stored, packed, count());
    for (int64_t i = 0; i < count(); ++i) {
      if (sources[i] >= 0) stored[sources[i]] = from_float<T>(packed[i]);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_ROWS_INL_H_
