// A small matrix product for rows that are in cache: C [rows, columns] = A [rows, inner] B + bias,
// plus a residual where one is given.
//
// Why not a library: the kernels multiply a few rows at a time between other work on the same cache
// lines, by packed weights, and this library does not link torch. On large products
// it reaches the speed of the machine's best library (`qna bench product`).
//
// Every element is one chain of fused multiply-adds over `inner` in order, whatever the tile it
// falls into: a pixel's result does not depend on where in the image or batch it lies.
//
// B may be kept in bfloat16. Its numbers become float32 in registers, beside the multiplications,
// and half as much comes from memory.

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
#include "qna/base/cache_sizes.h"
#include "qna/base/half.h"
#include "qna/base/runtime.h"
#include "qna/kernels/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;

HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

// Accumulators of a tile: rows x panel vectors. 16 registers: 6 x 2, plus 2 of B and 1 of A.
// 32 registers: 6 x 4, plus 4 and 1, or 5 x 5, plus 5 and 1: as many multiplications for each load.
constexpr int kTileRows = 6;
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int64_t kMaxPanel = 5;
#else
constexpr int64_t kMaxPanel = 2;
#endif
constexpr int RowsOfTile(int vectors) { return vectors == 5 ? 5 : kTileRows; }

// B, packed: panels of 1 to kMaxPanel vectors as equal as can be; within a panel the rows of B.
struct PackedMatrix {
  const float* data;
  const float* bias;  // [vectors * lanes], zeros where there is none
  int64_t inner;
  int64_t vectors;  // columns rounded up to vectors
  int64_t columns;
  const BFloat16* narrow = nullptr;  // takes the place of `data` where it is given
};

HWY_INLINE int64_t PanelCount(int64_t vectors, int64_t most = kMaxPanel) {
  return (vectors + most - 1) / most;
}

// First vector of panel p. Most matrices that are small, and so care for the division, have one.
HWY_INLINE int64_t PanelBegin(int64_t vectors, int64_t p, int64_t most = kMaxPanel) {
  return vectors <= most ? p * vectors : p * vectors / PanelCount(vectors, most);
}

// Writes [inner][columns] at(k, c) into packed form; `data` holds inner * vectors * lanes numbers.
template <typename T, typename At>
void PackMatrix(T* data, int64_t inner, int64_t vectors, Runtime& runtime, const At& at) {
  const int64_t lanes = Lanes();
  runtime.for_each(PanelCount(vectors), [&](int64_t p, int) {
    const int64_t begin = PanelBegin(vectors, p) * lanes;
    const int64_t end = PanelBegin(vectors, p + 1) * lanes;
    T* HWY_RESTRICT out = data + begin * inner;
    for (int64_t k = 0; k < inner; ++k)
      for (int64_t c = begin; c < end; ++c) *out++ = from_float<T>(at(k, c));
  });
}

// What is added to the finished sums, rows `stride` apart; may be C itself. Null: nothing.
struct Residual {
  const float* data = nullptr;
  int64_t stride = 0;
};

// A vector of a row of B.
HWY_INLINE FloatVector LoadRow(const float* b) { return hn::Load(FloatTag(), b); }
HWY_INLINE FloatVector LoadRow(const BFloat16* b) {
  const hn::RebindToUnsigned<FloatTag> wide;
  const hn::Rebind<uint16_t, FloatTag> narrow;
  const auto bits = hn::PromoteTo(wide, hn::Load(narrow, &b->bits));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(bits));
}

// One tile of kRows rows by kVectors vectors. a: rows a_stride apart. start: what the sums begin
// with, the bias (start_stride 0) or what an earlier part of `inner` left. c: rows c_stride apart.
// kPartial: only `columns` of the tile's columns are stored.
template <int kRows, int kVectors, bool kPartial, typename Weight>
HWY_NOINLINE void GemmTile(const float* HWY_RESTRICT a, int64_t a_stride, int64_t inner,
                           const Weight* HWY_RESTRICT b, const float* start, int64_t start_stride,
                           Residual residual, float* c, int64_t c_stride, int64_t columns) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  FloatVector sums[kRows][kVectors];
  QNA_UNROLL
  for (int r = 0; r < kRows; ++r) {
    QNA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Load(d, start + r * start_stride + v * lanes);
    }
  }
  for (int64_t k = 0; k < inner; ++k) {
    FloatVector row[kVectors];
    QNA_UNROLL
    for (int v = 0; v < kVectors; ++v) row[v] = LoadRow(b + v * lanes);
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

// All rows of a panel for one part of `inner`.
template <int kVectors, bool kPartial, typename Weight>
HWY_INLINE void GemmRows(const float* a, int64_t a_stride, int64_t rows, int64_t inner,
                         const Weight* b, const float* start, int64_t start_stride,
                         Residual residual, float* c, int64_t c_stride, int64_t columns) {
  const auto tile = [&](auto tile_rows) HWY_ATTR {
    GemmTile<tile_rows.value, kVectors, kPartial>(a, a_stride, inner, b, start, start_stride,
                                                  residual, c, c_stride, columns);
    a += tile_rows.value * a_stride;
    c += tile_rows.value * c_stride;
    start += tile_rows.value * start_stride;
    if (residual.data != nullptr) residual.data += tile_rows.value * residual.stride;
    rows -= tile_rows.value;
  };
  constexpr int kRows = RowsOfTile(kVectors);
  while (rows >= kRows) tile(std::integral_constant<int, kRows>());
  if (kRows > 5 && rows == 5) tile(std::integral_constant<int, 5>());
  if (rows == 4) tile(std::integral_constant<int, 4>());
  if (rows == 3) tile(std::integral_constant<int, 3>());
  if (rows == 2) tile(std::integral_constant<int, 2>());
  if (rows == 1) tile(std::integral_constant<int, 1>());
}

// A panel of B that many rows multiply goes in parts that stay in the first-level cache. The sums
// wait in a place of their own: the residual, which comes last, may be C.
template <int kVectors, typename Weight>
HWY_INLINE void GemmPanel(const float* a, int64_t a_stride, int64_t rows, int64_t inner,
                          const Weight* b, const float* bias, Residual residual, float* c,
                          int64_t c_stride, int64_t columns) {
  const int64_t row_floats = kVectors * Lanes();
  const int64_t fit = cache_sizes().first * 3 / 4 / (row_floats * int64_t{sizeof(Weight)});
  const auto last_part = [&](int64_t begin, int64_t count, const float* start,
                             int64_t start_stride) HWY_ATTR {
    if (HWY_LIKELY(columns >= row_floats)) {
      GemmRows<kVectors, false>(a + begin, a_stride, count, inner - begin, b + begin * row_floats,
                                start, start_stride, residual, c, c_stride, columns);
    } else {
      GemmRows<kVectors, true>(a + begin, a_stride, count, inner - begin, b + begin * row_floats,
                               start, start_stride, residual, c, c_stride, columns);
    }
  };
  if (rows <= 2 * kTileRows || inner <= fit) return last_part(0, rows, bias, 0);
  const int64_t parts = (inner + fit - 1) / fit;
  constexpr int64_t kBlock = 16 * kTileRows;
  HWY_ALIGN float sums[kBlock * kVectors * HWY_MAX_BYTES / sizeof(float)];
  for (; rows > 0; rows -= kBlock) {
    const int64_t count = std::min(kBlock, rows);
    const float* start = bias;
    int64_t start_stride = 0;
    for (int64_t p = 0; p + 1 < parts; ++p) {
      const int64_t begin = p * inner / parts;
      GemmRows<kVectors, false>(a + begin, a_stride, count, (p + 1) * inner / parts - begin,
                                b + begin * row_floats, start, start_stride, {}, sums, row_floats,
                                row_floats);
      start = sums;
      start_stride = row_floats;
    }
    last_part((parts - 1) * inner / parts, count, start, start_stride);
    a += kBlock * a_stride;
    c += kBlock * c_stride;
    if (residual.data != nullptr) residual.data += kBlock * residual.stride;
  }
}

struct PanelRange {
  int64_t first, end;
};

// Panel p of C for some rows.
inline HWY_NOINLINE void GemmPanel(float* c, int64_t c_stride, const float* a, int64_t a_stride,
                                   int64_t rows, const PackedMatrix& b, Residual residual,
                                   int64_t p) {
  const int64_t lanes = Lanes();
  const int64_t begin = PanelBegin(b.vectors, p);
  const float* bias = b.bias + begin * lanes;
  float* out = c + begin * lanes;
  const int64_t columns = b.columns - begin * lanes;
  if (residual.data != nullptr) residual.data += begin * lanes;
  const int64_t offset = begin * lanes * b.inner;
  const auto run = [&](auto vectors) HWY_ATTR {
    if (b.narrow == nullptr) {
      GemmPanel<vectors.value>(a, a_stride, rows, b.inner, b.data + offset, bias, residual, out,
                               c_stride, columns);
    } else {
      GemmPanel<vectors.value>(a, a_stride, rows, b.inner, b.narrow + offset, bias, residual, out,
                               c_stride, columns);
    }
  };
  switch (PanelBegin(b.vectors, p + 1) - begin) {
    case 1:
      return run(std::integral_constant<int, 1>());
    case 2:
      return run(std::integral_constant<int, 2>());
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
    case 3:
      return run(std::integral_constant<int, 3>());
    case 4:
      return run(std::integral_constant<int, 4>());
    case 5:
      return run(std::integral_constant<int, 5>());
#endif
  }
}

// `after(out, columns)` is called for columns of C as they are finished and still in cache:
// `columns` columns of all rows from `out` on. Only the columns of `panels` are computed.
template <typename After>
HWY_INLINE void Gemm(float* c, int64_t c_stride, const float* a, int64_t a_stride, int64_t rows,
                     const PackedMatrix& b, Residual residual, const After& after,
                     PanelRange panels) {
  const int64_t lanes = Lanes();
  const int64_t begin = PanelBegin(b.vectors, panels.first) * lanes;
  const int64_t end = PanelBegin(b.vectors, panels.end) * lanes;
  if ((end - begin) * b.inner * int64_t{sizeof(float)} <= cache_sizes().first * 3 / 4) {
    // All of B stays in the first-level cache: whole rows of C are written at a time.
    constexpr int64_t kRows = 5 * kTileRows;
    for (int64_t first = 0; first < rows; first += kRows) {
      const Residual from{
          residual.data == nullptr ? nullptr : residual.data + first * residual.stride,
          residual.stride};
      for (int64_t p = panels.first; p < panels.end; ++p) {
        GemmPanel(c + first * c_stride, c_stride, a + first * a_stride, a_stride,
                  std::min(kRows, rows - first), b, from, p);
      }
    }
    after(c + begin, std::min(end, b.columns) - begin);
    return;
  }
  for (int64_t p = panels.first; p < panels.end; ++p) {
    GemmPanel(c, c_stride, a, a_stride, rows, b, residual, p);
    const int64_t from = PanelBegin(b.vectors, p) * lanes;
    after(c + from, std::min(PanelBegin(b.vectors, p + 1) * lanes, b.columns) - from);
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
