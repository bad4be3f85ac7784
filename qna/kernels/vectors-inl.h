// Loops over the features of a row whose last vector may be a part of one.

#if defined(QNA_KERNELS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_VECTORS_INL_H_
#undef QNA_KERNELS_VECTORS_INL_H_
#else
#define QNA_KERNELS_VECTORS_INL_H_
#endif

#include "qna/kernels/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

struct WholeVector {
  HWY_INLINE FloatVector load(const float* from) const { return hn::LoadU(FloatTag(), from); }
  HWY_INLINE void store(FloatVector v, float* to) const { hn::StoreU(v, FloatTag(), to); }
};

// The first `count` lanes. The others load as 0 and are not stored; no memory behind is touched.
struct PartVector {
  int64_t count;

#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_INLINE FloatVector load(const float* from) const {
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
    std::memcpy(lanes, from, count * sizeof(float));
    return hn::Load(FloatTag(), lanes);
  }
  HWY_INLINE void store(FloatVector v, float* to) const {
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(v, FloatTag(), lanes);
    std::memcpy(to, lanes, count * sizeof(float));
  }
#else
  HWY_INLINE FloatVector load(const float* from) const {
    return hn::MaskedLoad(hn::FirstN(FloatTag(), count), FloatTag(), from);
  }
  HWY_INLINE void store(FloatVector v, float* to) const {
    hn::BlendedStore(v, hn::FirstN(FloatTag(), count), FloatTag(), to);
  }
#endif
};

// use(c, vector) for each vector of `count` floats: `vector` loads and stores what there is of it.
template <typename Use>
HWY_INLINE void ForEachVector(int64_t count, const Use& use) {
  const int64_t lanes = Lanes();
  int64_t c = 0;
  for (; c + lanes <= count; c += lanes) use(c, WholeVector());
  if (c < count) use(c, PartVector{count - c});
}

// Short runs too often for a call of memcpy. The last vector overlaps the one before it.
HWY_INLINE void CopyFloats(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, int64_t count) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  if (count < lanes) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  for (int64_t c = 0; c < count - lanes; c += lanes) hn::StoreU(hn::LoadU(d, from + c), d, to + c);
  hn::StoreU(hn::LoadU(d, from + count - lanes), d, to + count - lanes);
}

inline void AddToSums(double* HWY_RESTRICT sums, const float* HWY_RESTRICT row, int64_t count) {
  for (int64_t c = 0; c < count; ++c) sums[c] += row[c];
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_VECTORS_INL_H_
