#include "qna/kernels/halo_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace qna::kernels {
namespace {

// What belongs to a block along one axis.
struct Span {
  Span(int64_t index, int64_t size, int64_t block, int64_t halo, int64_t stride) {
    const int64_t begin = index * block;
    first_query = begin / stride;
    end_query = (std::min(begin + block, size) + stride - 1) / stride;
    first_key = std::max<int64_t>(begin - halo, 0);
    end_key = std::min(begin + block + halo, size);
  }
  int64_t first_query, end_query;  // counted in queries
  int64_t first_key, end_key;      // counted in pixels
};

int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

struct Key {
  int64_t y, x, pixel;
  double weight;  // its score at first
};

double dot(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// softmax over the scores; no keys, no weights.
void to_weights(std::vector<Key>& keys) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const Key& key : keys) largest = std::max(largest, key.weight);
  double total = 0;
  for (Key& key : keys) total += key.weight = std::exp(key.weight - largest);
  for (Key& key : keys) key.weight /= total;
}

void attend_block(const HaloAttentionArgs& args, int64_t image, const Span& rows,
                  const Span& columns, int64_t head) {
  const int64_t dim = args.head_dim;
  const int64_t query_rows = blocks(args.height, args.stride_h);
  const int64_t query_columns = blocks(args.width, args.stride_w);
  std::vector<Key> keys;
  for (int64_t y = rows.first_key; y < rows.end_key; ++y)
    for (int64_t x = columns.first_key; x < columns.end_key; ++x) {
      const int64_t pixel = (image * args.height + y) * args.width + x;
      if (args.mask == nullptr || args.mask[pixel] != 0) keys.push_back({y, x, pixel, 0});
    }
  // The smallest offset in the table is from a block's last query to the halo's first key.
  const int64_t center_y = args.block_h - args.stride_h + args.halo_h;
  const int64_t center_x = args.block_w - args.stride_w + args.halo_w;
  const int64_t table_columns = 2 * args.block_w + 2 * args.halo_w - args.stride_w;
  std::vector<double> sums(dim);
  for (int64_t i = rows.first_query; i < rows.end_query; ++i)
    for (int64_t j = columns.first_query; j < columns.end_query; ++j) {
      const int64_t at = (((image * query_rows + i) * query_columns + j) * args.heads + head) * dim;
      for (Key& key : keys) {
        const int64_t row = key.y - i * args.stride_h + center_y;
        const int64_t column = key.x - j * args.stride_w + center_x;
        const float* k = args.k + key.pixel * args.k_stride + head * dim;
        key.weight = args.scale * dot(args.q + at, k, dim) +
                     args.bias[(row * table_columns + column) * args.heads + head];
      }
      to_weights(keys);
      std::fill(sums.begin(), sums.end(), 0.0);
      for (const Key& key : keys) {
        const float* v = args.v + key.pixel * args.v_stride + head * dim;
        for (int64_t c = 0; c < dim; ++c) sums[c] += key.weight * v[c];
      }
      std::copy(sums.begin(), sums.end(), args.out + at);
    }
}

}  // namespace

void halo_attention(const HaloAttentionArgs& args, Runtime& runtime) {
  const int64_t block_rows = blocks(args.height, args.block_h);
  const int64_t block_columns = blocks(args.width, args.block_w);
  runtime.for_each(args.batch * block_rows * block_columns * args.heads, [&](int64_t task, int) {
    const int64_t index = task / args.heads;
    const Span rows(index / block_columns % block_rows, args.height, args.block_h, args.halo_h,
                    args.stride_h);
    const Span columns(index % block_columns, args.width, args.block_w, args.halo_w, args.stride_w);
    attend_block(args, index / block_columns / block_rows, rows, columns, task % args.heads);
  });
}

}  // namespace qna::kernels
