// A small matrix product for rows that are in cache: C [rows, columns] = A [rows, inner] B + bias,
// plus a residual where one is given.
//
// Why not a library: the kernels multiply a few rows at a time between other work on the same cache
// lines, by packed weights, and this library does not link torch. On large products
// it reaches the speed of the machine's best library (the `gemm` rows of `qna bench layer`).
//
// Every element is one chain of fused multiply-adds over `inner` in order, whatever the tile it
// falls into: a pixel's result does not depend on where in the image or batch it lies.

#if defined(QNA_KERNELS_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_GEMM_INL_H_
#undef QNA_KERNELS_GEMM_INL_H_
#else
#define QNA_KERNELS_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "qna/base/runtime.h"
#include "qna/kernels/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;

HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

// Accumulators of a tile: kTileRows x panel vectors. 16 registers: 6 x 2, plus 2 of B and 1 of A.
// 32 registers: 6 x 4, plus 4 and 1.
constexpr int kTileRows = 6;
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int64_t kMaxPanel = 4;
#else
constexpr int64_t kMaxPanel = 2;
#endif

// B, packed: panels of 1 to kMaxPanel vectors as equal as can be; within a panel the rows of B.
struct PackedMatrix {
  const float* data;
  const float* bias;  // [vectors * lanes], zeros where there is none
  int64_t inner;
  int64_t vectors;  // columns rounded up to vectors
  int64_t columns;
};

HWY_INLINE int64_t PanelCount(int64_t vectors) { return (vectors + kMaxPanel - 1) / kMaxPanel; }

// First vector of panel p.
HWY_INLINE int64_t PanelBegin(int64_t vectors, int64_t p) {
  return p * vectors / PanelCount(vectors);
}

// Writes [inner][columns] at(k, c) into packed form; `data` holds inner * vectors * lanes floats.
template <typename At>
void PackMatrix(float* data, int64_t inner, int64_t vectors, Runtime& runtime, const At& at) {
  const int64_t lanes = Lanes();
  runtime.for_each(PanelCount(vectors), [&](int64_t p, int) {
    const int64_t begin = PanelBegin(vectors, p) * lanes;
    const int64_t end = PanelBegin(vectors, p + 1) * lanes;
    float* HWY_RESTRICT out = data + begin * inner;
    for (int64_t k = 0; k < inner; ++k)
      for (int64_t c = begin; c < end; ++c) *out++ = at(k, c);
  });
}

// What is added to the finished sums, rows `stride` apart; may be C itself. Null: nothing.
struct Residual {
  const float* data = nullptr;
  int64_t stride = 0;
};

// One tile of kRows rows by kVectors vectors. a: rows a_stride apart. c: rows c_stride apart.
// kPartial: only `columns` of the tile's columns are stored.
template <int kRows, int kVectors, bool kPartial>
HWY_NOINLINE void GemmTile(const float* HWY_RESTRICT a, int64_t a_stride, int64_t inner,
                           const float* HWY_RESTRICT b, const float* HWY_RESTRICT bias,
                           Residual residual, float* c, int64_t c_stride, int64_t columns) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  FloatVector sums[kRows][kVectors];
  QNA_UNROLL
  for (int r = 0; r < kRows; ++r) {
    QNA_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Load(d, bias + v * lanes);
  }
  for (int64_t k = 0; k < inner; ++k) {
    FloatVector row[kVectors];
    QNA_UNROLL
    for (int v = 0; v < kVectors; ++v) row[v] = hn::Load(d, b + v * lanes);
    b += kVectors * lanes;
    QNA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const FloatVector element = hn::Set(d, a[r * a_stride + k]);
      QNA_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(element, row[v], sums[r][v]);
    }
  }
  if constexpr (!kPartial) {
    if (residual.data != nullptr) {
      QNA_UNROLL
      for (int r = 0; r < kRows; ++r) {
        QNA_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          const float* from = residual.data + r * residual.stride + v * lanes;
          sums[r][v] = hn::Add(sums[r][v], hn::LoadU(d, from));
        }
      }
    }
    QNA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      QNA_UNROLL
      for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, c + r * c_stride + v * lanes);
    }
  } else {
    HWY_ALIGN float tile[kRows * kVectors * HWY_MAX_BYTES / sizeof(float)];
    QNA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      QNA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        hn::Store(sums[r][v], d, tile + (r * kVectors + v) * lanes);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      float* sum = tile + r * kVectors * lanes;
      if (residual.data != nullptr) {
        for (int64_t i = 0; i < columns; ++i) sum[i] += residual.data[r * residual.stride + i];
      }
      std::memcpy(c + r * c_stride, sum, columns * sizeof(float));
    }
  }
}

template <int kVectors, bool kPartial>
HWY_INLINE void GemmPanel(const float* a, int64_t a_stride, int64_t rows, int64_t inner,
                          const float* b, const float* bias, Residual residual, float* c,
                          int64_t c_stride, int64_t columns) {
  const auto tile = [&](auto tile_rows) HWY_ATTR {
    GemmTile<tile_rows.value, kVectors, kPartial>(a, a_stride, inner, b, bias, residual, c,
                                                  c_stride, columns);
    a += tile_rows.value * a_stride;
    c += tile_rows.value * c_stride;
    if (residual.data != nullptr) residual.data += tile_rows.value * residual.stride;
    rows -= tile_rows.value;
  };
  while (rows >= kTileRows) tile(std::integral_constant<int, kTileRows>());
  if (rows == 5) tile(std::integral_constant<int, 5>());
  if (rows == 4) tile(std::integral_constant<int, 4>());
  if (rows == 3) tile(std::integral_constant<int, 3>());
  if (rows == 2) tile(std::integral_constant<int, 2>());
  if (rows == 1) tile(std::integral_constant<int, 1>());
}

template <int kVectors>
HWY_INLINE void GemmPanel(const float* a, int64_t a_stride, int64_t rows, int64_t inner,
                          const float* b, const float* bias, Residual residual, float* c,
                          int64_t c_stride, int64_t columns) {
  if (HWY_LIKELY(columns >= kVectors * Lanes())) {
    GemmPanel<kVectors, false>(a, a_stride, rows, inner, b, bias, residual, c, c_stride, columns);
  } else {
    GemmPanel<kVectors, true>(a, a_stride, rows, inner, b, bias, residual, c, c_stride, columns);
  }
}

struct PanelRange {
  int64_t first, end;
};

// `after(out, columns)` is called for each panel of C as it is finished and still in the
// first-level cache: `columns` columns of all rows from `out` on. Only the columns of `panels` are
// computed.
template <typename After>
HWY_INLINE void Gemm(float* c, int64_t c_stride, const float* a, int64_t a_stride, int64_t rows,
                     const PackedMatrix& b, Residual residual, const After& after,
                     PanelRange panels) {
  const int64_t lanes = Lanes();
  for (int64_t p = panels.first; p < panels.end; ++p) {
    const int64_t begin = PanelBegin(b.vectors, p);
    const int64_t vectors = PanelBegin(b.vectors, p + 1) - begin;
    const float* data = b.data + begin * lanes * b.inner;
    const float* bias = b.bias + begin * lanes;
    float* out = c + begin * lanes;
    const int64_t columns = b.columns - begin * lanes;
    const Residual from{residual.data == nullptr ? nullptr : residual.data + begin * lanes,
                        residual.stride};
    switch (vectors) {
      case 1:
        GemmPanel<1>(a, a_stride, rows, b.inner, data, bias, from, out, c_stride, columns);
        break;
      case 2:
        GemmPanel<2>(a, a_stride, rows, b.inner, data, bias, from, out, c_stride, columns);
        break;
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
      case 3:
        GemmPanel<3>(a, a_stride, rows, b.inner, data, bias, from, out, c_stride, columns);
        break;
      case 4:
        GemmPanel<4>(a, a_stride, rows, b.inner, data, bias, from, out, c_stride, columns);
        break;
#endif
    }
    after(out, std::min(columns, vectors * lanes));
  }
}

template <typename After>
HWY_INLINE void Gemm(float* c, int64_t c_stride, const float* a, int64_t a_stride, int64_t rows,
                     const PackedMatrix& b, Residual residual, const After& after) {
  Gemm(c, c_stride, a, a_stride, rows, b, residual, after, {0, PanelCount(b.vectors)});
}

inline HWY_NOINLINE void Gemm(float* c, int64_t c_stride, const float* a, int64_t a_stride,
                              int64_t rows, const PackedMatrix& b, Residual residual = {}) {
  Gemm(c, c_stride, a, a_stride, rows, b, residual, [](float*, int64_t) {});
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_GEMM_INL_H_
