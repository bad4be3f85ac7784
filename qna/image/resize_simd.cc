#include "qna/image/resize_simd.h"

#include <algorithm>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/image/resize_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qna::image {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<int32_t>;
using V = hn::Vec<D>;

HWY_INLINE V Half() { return hn::Set(D(), 1 << (kWeightBits - 1)); }

HWY_INLINE V Load(const uint8_t* bytes) {
  return hn::PromoteTo(D(), hn::LoadU(hn::Rebind<uint8_t, D>(), bytes));
}

// Rounds to bytes; DemoteTo saturates.
HWY_INLINE void Store(V sum, uint8_t* bytes) {
  const hn::Rebind<uint8_t, D> d8;
  hn::StoreU(hn::DemoteTo(d8, hn::ShiftRight<kWeightBits>(sum)), d8, bytes);
}

// One row out of `taps` rows of `size` bytes each: out[i] = sum over t of weights[t] * rows[t][i].
void AddRows(uint8_t* HWY_RESTRICT out, const uint8_t* HWY_RESTRICT rows, int64_t row_stride,
             int64_t size, const int32_t* HWY_RESTRICT weights, int64_t taps) {
  const int64_t lanes = hn::Lanes(D());
  int64_t i = 0;
  for (; i + 4 * lanes <= size; i += 4 * lanes) {
    V sum0 = Half(), sum1 = Half(), sum2 = Half(), sum3 = Half();
    const uint8_t* row = rows + i;
    for (int64_t t = 0; t < taps; ++t, row += row_stride) {
      const V weight = hn::Set(D(), weights[t]);
      sum0 = hn::Add(sum0, hn::Mul(Load(row), weight));
      sum1 = hn::Add(sum1, hn::Mul(Load(row + lanes), weight));
      sum2 = hn::Add(sum2, hn::Mul(Load(row + 2 * lanes), weight));
      sum3 = hn::Add(sum3, hn::Mul(Load(row + 3 * lanes), weight));
    }
    Store(sum0, out + i);
    Store(sum1, out + i + lanes);
    Store(sum2, out + i + 2 * lanes);
    Store(sum3, out + i + 3 * lanes);
  }
  while (i < size && size >= lanes) {
    i = std::min(i, size - lanes);  // the last vector may do some bytes again
    V sum = Half();
    for (int64_t t = 0; t < taps; ++t) {
      sum = hn::Add(sum, hn::Mul(Load(rows + t * row_stride + i), hn::Set(D(), weights[t])));
    }
    Store(sum, out + i);
    i += lanes;
  }
  for (; i < size; ++i) {
    int32_t sum = 1 << (kWeightBits - 1);
    for (int64_t t = 0; t < taps; ++t) sum += rows[t * row_stride + i] * weights[t];
    out[i] = static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
  }
}

#if HWY_TARGET != HWY_SCALAR  // which has no vectors of 16 bytes
// out[x][y] = in[y][x] for 16 x 16 bytes. Each round deals the rows of the lower half between
// those of the upper half; after log2(16) rounds rows have become columns.
HWY_INLINE void Transpose16(uint8_t* out, int64_t out_stride, const uint8_t* in,
                            int64_t in_stride) {
  const hn::FixedTag<uint8_t, 16> d;
  hn::Vec<decltype(d)> a[16], b[16];
  for (int k = 0; k < 16; ++k) a[k] = hn::LoadU(d, in + k * in_stride);
  for (int round = 0; round < 4; ++round) {
    for (int k = 0; k < 8; ++k) {
      b[2 * k] = hn::InterleaveLower(d, a[k], a[k + 8]);
      b[2 * k + 1] = hn::InterleaveUpper(d, a[k], a[k + 8]);
    }
    for (int k = 0; k < 16; ++k) a[k] = b[k];
  }
  for (int k = 0; k < 16; ++k) hn::StoreU(a[k], d, out + k * out_stride);
}
#endif

// out[x][y] = in[y][x] for any number of rows and columns.
void Transpose(uint8_t* out, int64_t out_stride, const uint8_t* in, int64_t in_stride, int64_t rows,
               int64_t columns) {
  int64_t tile_rows = 0;
  int64_t tile_columns = 0;
#if HWY_TARGET != HWY_SCALAR
  tile_rows = rows / 16 * 16;
  tile_columns = columns / 16 * 16;
  for (int64_t y = 0; y < tile_rows; y += 16)
    for (int64_t x = 0; x < tile_columns; x += 16) {
      Transpose16(out + x * out_stride + y, out_stride, in + y * in_stride + x, in_stride);
    }
#endif
  for (int64_t y = 0; y < rows; ++y)
    for (int64_t x = y < tile_rows ? tile_columns : 0; x < columns; ++x) {
      out[x * out_stride + y] = in[y * in_stride + x];
    }
}

void ResizeRows(Image& out, const Image& image, const ResizeWeights& rows) {
  const int64_t size = image.row_bytes();
  for (int64_t y = 0; y < out.height; ++y) {
    const auto [first, count] = rows.spans[y];
    AddRows(out.row(y), image.row(first), size, size, rows.of(y), count);
  }
}

// Rows are turned into columns, strip by strip, so that neighbours along the row are neighbours
// down a column, where AddRows needs no shuffles whatever the number of channels.
void ResizeColumns(Image& out, const Image& image, int64_t first_row,
                   const ResizeWeights& columns) {
  constexpr int64_t kStrip = 32;  // rows; more would not fit the second-level cache
  const int64_t c = image.channels;
  const int64_t begin = columns.first();
  const int64_t in_size = (columns.end() - begin) * c;
  std::vector<uint8_t> turned(in_size * kStrip);           // [columns, channels, kStrip]
  std::vector<uint8_t> resized(out.row_bytes() * kStrip);  // the same of `out`
  for (int64_t y = 0; y < out.height; y += kStrip) {
    const int64_t rows = std::min(kStrip, out.height - y);
    Transpose(turned.data(), kStrip, image.row(first_row + y) + begin * c, image.row_bytes(), rows,
              in_size);
    for (int64_t x = 0; x < out.width; ++x) {
      const auto [first, count] = columns.spans[x];
      AddRows(resized.data() + x * c * kStrip, turned.data() + (first - begin) * c * kStrip,
              c * kStrip, c * kStrip, columns.of(x), count);
    }
    Transpose(out.row(y), out.row_bytes(), resized.data(), kStrip, out.row_bytes(), rows);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::image {

HWY_EXPORT(ResizeColumns);
HWY_EXPORT(ResizeRows);

void resize_columns(Image& out, const Image& image, int64_t first_row,
                    const ResizeWeights& columns) {
  HWY_DYNAMIC_DISPATCH(ResizeColumns)(out, image, first_row, columns);
}

void resize_rows(Image& out, const Image& image, const ResizeWeights& rows) {
  HWY_DYNAMIC_DISPATCH(ResizeRows)(out, image, rows);
}

}  // namespace qna::image
#endif
