// What the branches of a block have in common in training: weights that are packed anew in every
// call, rows with a factor for each sample, and the gradients of a norm whose scale and shift stand
// inside the product behind it.

#if defined(QNA_KERNELS_BRANCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_BRANCH_INL_H_
#undef QNA_KERNELS_BRANCH_INL_H_
#else
#define QNA_KERNELS_BRANCH_INL_H_
#endif

#include <vector>

#include "qna/kernels/activation_gradient-inl.h"
#include "qna/kernels/mlp-inl.h"
#include "qna/kernels/outer_sum-inl.h"
#include "qna/kernels/row_chunks.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// What the backward pass packs at a time may take this much: it is read again from the last-level
// cache.
constexpr int64_t kGroupBytes = 8 << 20;
// And what a worker holds of it at a time. Biases' gradients are summed by such chunks, so that
// their last bits shall not depend on the machine's cache.
constexpr int64_t kChunkBytes = 224 << 10;

// A factor for each sample, as stochastic depth draws them.
struct SampleFactors {
  const float* factors;  // null: all 1
  int64_t sample_rows;
  float of(int64_t row) const { return factors == nullptr ? 1.0f : factors[row / sample_rows]; }
};

// scale: null for 1.
HWY_INLINE void ScaleRow(float* HWY_RESTRICT to, const float* HWY_RESTRICT from,
                         const float* HWY_RESTRICT scale, int64_t count) {
  const FloatTag d;
  const int64_t lanes = Lanes();
  int64_t c = 0;
  for (; c + lanes <= count; c += lanes) {
    const FloatVector row = hn::LoadU(d, from + c);
    hn::StoreU(scale == nullptr ? row : hn::Mul(row, hn::LoadU(d, scale + c)), d, to + c);
  }
  for (; c < count; ++c) to[c] = scale == nullptr ? from[c] : from[c] * scale[c];
}

// A weight matrix in scratch memory, packed anew in every call: in training no two see the same.
struct ScratchMatrix {
  void carve(ScratchArena& arena, int64_t inner, int64_t columns) {
    const int64_t vectors = (columns + Lanes() - 1) / Lanes();
    data = arena.take<float>(inner * vectors * Lanes());
    bias = arena.take<float>(vectors * Lanes());
    matrix = {data, bias, inner, vectors, columns};
  }
  // Rows [columns][inner], as linear layers have them; scale: [inner], or null. By blocks of a
  // cache line of each row: going down a column, rows of 2^n bytes would push each other out.
  void pack_transposed(Runtime& runtime, const float* rows, const float* scale) const {
    constexpr int64_t kBlock = 16;
    std::fill_n(bias, matrix.vectors * Lanes(), 0.0f);
    runtime.for_each(PanelCount(matrix.vectors), [&](int64_t p, int) {
      const int64_t begin = PanelBegin(matrix.vectors, p) * Lanes();
      const int64_t width = PanelBegin(matrix.vectors, p + 1) * Lanes() - begin;
      const int64_t valid = std::min(width, matrix.columns - begin);
      float* panel = data + begin * matrix.inner;
      for (int64_t k = 0; k < matrix.inner; k += kBlock) {
        const int64_t count = std::min(kBlock, matrix.inner - k);
        for (int64_t c = 0; c < width; ++c) {
          float* HWY_RESTRICT to = panel + k * width + c;
          if (c >= valid) {
            for (int64_t i = 0; i < count; ++i) to[i * width] = 0.0f;
            continue;
          }
          const float* HWY_RESTRICT from = rows + (begin + c) * matrix.inner + k;
          for (int64_t i = 0; i < count; ++i) {
            to[i * width] = scale == nullptr ? from[i] : from[i] * scale[k + i];
          }
        }
      }
    });
  }
  // Rows [inner][columns] that lie as they are multiplied; scale: of the columns, or null.
  void pack_rows(Runtime& runtime, const float* rows, const float* scale) const {
    std::fill_n(bias, matrix.vectors * Lanes(), 0.0f);
    runtime.for_each(PanelCount(matrix.vectors), [&](int64_t p, int) HWY_ATTR {
      const int64_t begin = PanelBegin(matrix.vectors, p) * Lanes();
      const int64_t width = PanelBegin(matrix.vectors, p + 1) * Lanes() - begin;
      const int64_t valid = std::min(width, matrix.columns - begin);
      float* to = data + begin * matrix.inner;
      for (int64_t k = 0; k < matrix.inner; ++k, to += width) {
        ScaleRow(to, rows + k * matrix.columns + begin, scale == nullptr ? nullptr : scale + begin,
                 valid);
        std::fill(to + valid, to + width, 0.0f);
      }
    });
  }
  float* data;
  float* bias;
  PackedMatrix matrix;
};

// LayerNorm's scale and shift go into the weights [outputs, features] behind it:
// W (g n + s) + b = (W g) n + (W s + b). bias: b, or null.
inline void PackNormed(const ScratchMatrix& packed, Runtime& runtime, const float* weight,
                       const float* bias, const float* norm_weight, const float* norm_bias) {
  const int64_t features = packed.matrix.inner;
  packed.pack_transposed(runtime, weight, norm_weight);
  for (int64_t c = 0; c < packed.matrix.columns; ++c) {
    packed.bias[c] =
        (bias == nullptr ? 0.0f : bias[c]) + DotRow(weight + c * features, norm_bias, features);
  }
}

// y = x + factor (a W + b) of a chunk's rows.
inline void AddProduct(float* y, const float* x, const float* a, const PackedMatrix& weights,
                       const RowChunk& chunk, const SampleFactors& factors) {
  const int64_t features = weights.columns;
  if (factors.factors == nullptr) {
    Gemm(y, features, a, weights.inner, chunk.rows, weights, {x, features});
    return;
  }
  Gemm(y, features, a, weights.inner, chunk.rows, weights);
  for (int64_t r = 0; r < chunk.rows; ++r) {
    const float factor = factors.of(chunk.first + r);
    const float* HWY_RESTRICT from = x + r * features;
    float* HWY_RESTRICT to = y + r * features;
    for (int64_t c = 0; c < features; ++c) to[c] = from[c] + factor * to[c];
  }
}

// factor from, of a chunk's rows.
inline void ScaleRows(float* to, const float* from, int64_t features, const RowChunk& chunk,
                      const SampleFactors& factors) {
  for (int64_t r = 0; r < chunk.rows; ++r) {
    const float factor = factors.of(chunk.first + r);
    float* HWY_RESTRICT row = to + r * features;
    for (int64_t c = 0; c < features; ++c) row[c] = factor * from[r * features + c];
  }
}

// Adds rows to a chunk's sum, for the gradients of biases.
inline void AddRows(float* HWY_RESTRICT sum, const float* rows, int64_t count, int64_t features) {
  for (int64_t r = 0; r < count; ++r) {
    const float* HWY_RESTRICT row = rows + r * features;
    for (int64_t c = 0; c < features; ++c) sum[c] += row[c];
  }
}

// The sums of all chunks: [chunks][features] -> [features].
inline void AddChunks(float* to, const float* sums, int64_t chunks, int64_t features) {
  std::vector<double> total(features, 0.0);
  for (int64_t i = 0; i < chunks; ++i)
    for (int64_t c = 0; c < features; ++c) total[c] += sums[i * features + c];
  for (int64_t c = 0; c < features; ++c) to[c] = static_cast<float>(total[c]);
}

// Both sums over a group's packed rows.
inline void AddGroup(const OuterSum& a, const OuterSum& b, int64_t rows, bool first_time,
                     Runtime& runtime) {
  runtime.for_each(a.tasks() + b.tasks(), [&](int64_t task, int) {
    if (task < a.tasks()) {
      a.add(task, rows, first_time);
    } else {
      b.add(task - a.tasks(), rows, first_time);
    }
  });
}

// The gradients of a product with a norm inside. With d those of its outputs, sum = d^T n and bias
// = the sum of d's rows: dW = sum g + bias s, dg = sum over outputs of W sum, ds = that of W bias.
struct NormedGradients {
  int64_t outputs, features;
  const float* weight;  // W [outputs, features]
  const float* norm_weight;
  const float* norm_bias;
  const float* bias;  // [outputs]
  float* grad_weight;
  float* grad_norm_weight;
  float* grad_norm_bias;

  void write(const OuterSum& sums, Runtime& runtime) const {
    constexpr int64_t kColumns = 32;
    runtime.for_each((features - 1) / kColumns + 1, [&](int64_t block, int) {
      const int64_t begin = block * kColumns;
      const int64_t count = std::min(kColumns, features - begin);
      const float* HWY_RESTRICT g = norm_weight + begin;
      const float* HWY_RESTRICT s = norm_bias + begin;
      double scale[kColumns] = {};
      double shift[kColumns] = {};
      for (int64_t k = 0; k < outputs; ++k) {
        const float* HWY_RESTRICT sum = sums.row(k) + begin;
        const float* HWY_RESTRICT w = weight + k * features + begin;
        float* HWY_RESTRICT to = grad_weight + k * features + begin;
        const float row_bias = bias[k];
        for (int64_t c = 0; c < count; ++c) {
          to[c] = sum[c] * g[c] + row_bias * s[c];
          scale[c] += static_cast<double>(w[c]) * sum[c];
          shift[c] += static_cast<double>(w[c]) * row_bias;
        }
      }
      for (int64_t c = 0; c < count; ++c) {
        grad_norm_weight[begin + c] = static_cast<float>(scale[c]);
        grad_norm_bias[begin + c] = static_cast<float>(shift[c]);
      }
    });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_BRANCH_INL_H_
