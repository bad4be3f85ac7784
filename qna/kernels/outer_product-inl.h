// Sums of outer products over rows: sum [m, n] += sum over rows of a [rows, m]^T b [rows, n], as
// the gradients of weights need them. Rows are packed until there are enough to pay for reading and
// writing the sum once.

#if defined(QNA_KERNELS_OUTER_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_OUTER_PRODUCT_INL_H_
#undef QNA_KERNELS_OUTER_PRODUCT_INL_H_
#else
#define QNA_KERNELS_OUTER_PRODUCT_INL_H_
#endif

#include "qna/kernels/gemm-inl.h"
#include "qna/kernels/rows-inl.h"
#include "qna/kernels/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// The widest panel of a sum: kTileRows times this many accumulators.
constexpr int64_t kMaxOuterPanel = std::min<int64_t>(kMaxPanel, 4);

// sum += a^T b of one tile, or sum = a^T b if `is_first`; a: [rows][kTileRows], b: [rows][kVectors
// vectors].
template <int kVectors>
HWY_NOINLINE void OuterTile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t rows,
                            float* HWY_RESTRICT sum, int64_t sum_stride, bool is_first) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  FloatVector sums[kTileRows][kVectors];
  if (is_first) {
    QNA_UNROLL
    for (int r = 0; r < kTileRows; ++r) {
      QNA_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
    }
  } else {
    QNA_UNROLL
    for (int r = 0; r < kTileRows; ++r) {
      QNA_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Load(d, sum + r * sum_stride + v * lanes);
    }
  }
  for (int64_t k = 0; k < rows; ++k) {
    FloatVector row[kVectors];
    QNA_UNROLL
    for (int v = 0; v < kVectors; ++v) row[v] = hn::Load(d, b + v * lanes);
    QNA_UNROLL
    for (int r = 0; r < kTileRows; ++r) {
      const FloatVector element = hn::Set(d, a[r]);
      QNA_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(element, row[v], sums[r][v]);
    }
    a += kTileRows;
    b += kVectors * lanes;
  }
  QNA_UNROLL
  for (int r = 0; r < kTileRows; ++r) {
    QNA_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, sum + r * sum_stride + v * lanes);
  }
}

// The same for a panel of that many vectors.
HWY_INLINE void OuterTileOf(int64_t vectors, const float* HWY_RESTRICT a,
                            const float* HWY_RESTRICT b, int64_t rows, float* HWY_RESTRICT sum,
                            int64_t sum_stride, bool is_first) {
  if (vectors == 1) OuterTile<1>(a, b, rows, sum, sum_stride, is_first);
  if (vectors == 2) OuterTile<2>(a, b, rows, sum, sum_stride, is_first);
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
  if (vectors == 3) OuterTile<3>(a, b, rows, sum, sum_stride, is_first);
  if (vectors == 4) OuterTile<4>(a, b, rows, sum, sum_stride, is_first);
#endif
}

// The shape of such a sum. With `ones`, a has one more column that is 1: the last row of the sum is
// then the sum of b, the gradient of a bias.
struct OuterShape {
  OuterShape(int64_t m_in, int64_t n_in, bool ones_in) : m(m_in), n(n_in), ones(ones_in) {
    tiles = (m + (ones ? 1 : 0) + kTileRows - 1) / kTileRows;
    vectors = (n + Lanes() - 1) / Lanes();
  }
  int64_t stride() const { return vectors * Lanes(); }
  int64_t floats() const { return tiles * kTileRows * stride(); }
  int64_t m, n;
  bool ones;
  int64_t tiles;    // of kTileRows rows of the sum
  int64_t vectors;  // of its columns
};

// A worker's packed rows.
class OuterProduct {
 public:
  static constexpr int64_t kRows = 128;

  OuterProduct(const OuterShape& shape) : shape_(shape) {}
  void carve(ScratchArena& arena) {
    a_ = arena.take<float>(shape_.tiles * kTileRows * kRows);
    b_ = arena.take<float>(shape_.stride() * kRows);
  }
  // Where the following rows are added: shape.floats() floats, which count as 0 if `is_first`.
  // finish() before the next begin().
  void begin(float* sum, bool is_first) {
    sum_ = sum;
    is_first_ = is_first;
  }

  template <typename A, typename B>
  void add(const A* a, int64_t a_stride, const B* b, int64_t b_stride, int64_t rows) {
    while (rows > 0) {
      const int64_t count = std::min(rows, kRows - filled_);
      pack(a, a_stride, b, b_stride, count);
      a += count * a_stride;
      b += count * b_stride;
      rows -= count;
      if (filled_ == kRows) flush();
    }
  }

  void finish() {
    if (filled_ > 0) {
      flush();
    } else if (is_first_) {
      std::fill_n(sum_, shape_.floats(), 0.0f);
    }
  }

 private:
  void flush() {
    const int64_t lanes = Lanes();
    for (int64_t p = 0; p < PanelCount(shape_.vectors, kMaxOuterPanel); ++p) {
      const int64_t begin = PanelBegin(shape_.vectors, p, kMaxOuterPanel);
      const int64_t vectors = PanelBegin(shape_.vectors, p + 1, kMaxOuterPanel) - begin;
      const float* b = b_ + begin * lanes * kRows;
      for (int64_t t = 0; t < shape_.tiles; ++t) {
        const float* a = a_ + t * kTileRows * kRows;
        float* sum = sum_ + t * kTileRows * shape_.stride() + begin * lanes;
        OuterTileOf(vectors, a, b, filled_, sum, shape_.stride(), is_first_);
      }
    }
    is_first_ = false;
    filled_ = 0;
  }

  // a by tiles of kTileRows columns, b by panels; both padded with 0.
  template <typename A, typename B>
  void pack(const A* a, int64_t a_stride, const B* b, int64_t b_stride, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
      const A* HWY_RESTRICT from = a + r * a_stride;
      float* HWY_RESTRICT to = a_ + (filled_ + r) * kTileRows;
      const int64_t whole = shape_.m / kTileRows;
      for (int64_t t = 0; t < whole; ++t)
        for (int i = 0; i < kTileRows; ++i) {
          to[t * kTileRows * kRows + i] = to_float(from[t * kTileRows + i]);
        }
      for (int64_t c = whole * kTileRows; c < shape_.tiles * kTileRows; ++c) {
        const float rest = c == shape_.m && shape_.ones ? 1.0f : 0.0f;
        to[c / kTileRows * kTileRows * kRows + c % kTileRows] =
            c < shape_.m ? to_float(from[c]) : rest;
      }
    }
    const int64_t lanes = Lanes();
    for (int64_t p = 0; p < PanelCount(shape_.vectors, kMaxOuterPanel); ++p) {
      const int64_t begin = PanelBegin(shape_.vectors, p, kMaxOuterPanel) * lanes;
      const int64_t width = PanelBegin(shape_.vectors, p + 1, kMaxOuterPanel) * lanes - begin;
      const int64_t valid = std::min(width, shape_.n - begin);
      for (int64_t r = 0; r < rows; ++r) {
        float* HWY_RESTRICT to = b_ + begin * kRows + (filled_ + r) * width;
        WidenRow(to, b + r * b_stride + begin, valid);
        std::fill(to + valid, to + width, 0.0f);
      }
    }
    filled_ += rows;
  }

  OuterShape shape_;
  float* a_ = nullptr;  // [tiles][kRows][kTileRows]
  float* b_ = nullptr;  // [panels][kRows][panel's columns]
  float* sum_ = nullptr;
  bool is_first_ = false;
  int64_t filled_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_OUTER_PRODUCT_INL_H_
