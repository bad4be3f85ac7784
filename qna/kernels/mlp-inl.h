// The MLP of a block on rows that are in cache: y += activation(norm(y) W1 + b1) W2 + b2.

#if defined(QNA_KERNELS_MLP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_MLP_INL_H_
#undef QNA_KERNELS_MLP_INL_H_
#else
#define QNA_KERNELS_MLP_INL_H_
#endif

#include "qna/kernels/activation-inl.h"
#include "qna/kernels/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// The rows a worker takes at a time go through everything before the next are touched: few enough
// that what they hold stays in half of the second-level cache, enough that a weight, once loaded,
// serves many rows.
constexpr int64_t kMostRows = 16 * kTileRows;
constexpr int64_t kFewestRows = 4 * kTileRows;

inline int64_t ChunkRows(int64_t floats_per_row, int64_t bytes = cache_sizes().second * 7 / 16) {
  const int64_t fit = bytes / (floats_per_row * int64_t{sizeof(float)});
  return std::clamp(fit / kTileRows * kTileRows, kFewestRows, kMostRows);
}

// A packed matrix in memory of the arena, to be filled.
inline PackedMatrix CarveMatrix(ScratchArena& arena, int64_t inner, int64_t columns,
                                WeightType type) {
  const int64_t vectors = (columns + Lanes() - 1) / Lanes();
  PackedMatrix matrix{nullptr, nullptr, inner, vectors, columns};
  if (type == WeightType::kBFloat16) {
    matrix.narrow = arena.take<BFloat16>(inner * vectors * Lanes());
  } else {
    matrix.data = arena.take<float>(inner * vectors * Lanes());
  }
  matrix.bias = arena.take<float>(vectors * Lanes());
  return matrix;
}

// weight(k, c) for all c up to whole vectors; bias(c) likewise.
template <typename Weight, typename Bias>
void FillMatrix(const PackedMatrix& matrix, Runtime& runtime, const Weight& weight,
                const Bias& bias) {
  if (matrix.narrow != nullptr) {
    PackMatrix(const_cast<BFloat16*>(matrix.narrow), matrix.inner, matrix.vectors, runtime, weight);
  } else {
    PackMatrix(const_cast<float*>(matrix.data), matrix.inner, matrix.vectors, runtime, weight);
  }
  for (int64_t c = 0; c < matrix.vectors * Lanes(); ++c) {
    const_cast<float*>(matrix.bias)[c] = bias(c);
  }
}

// A packed matrix in memory that a PackedWeights owns.
inline PackedMatrix MatrixIn(const PackedWeights& weights) {
  ScratchArena arena(weights.memory());
  return CarveMatrix(arena, weights.inner, weights.columns, weights.type);
}

class MlpRows {
 public:
  MlpRows(const PackedWeights& expand, const PackedWeights& contract, Activation activation,
          Norm norm)
      : expand_(MatrixIn(expand)),
        contract_(MatrixIn(contract)),
        activation_(activation),
        norm_(norm) {}

  int64_t features() const { return expand_.inner; }
  int64_t chunk() const { return ChunkRows(expand_.inner + expand_.columns); }

  // One worker's memory.
  struct Buffers {
    float* normed;  // [chunk][features]
    float* hidden;  // [chunk][hidden]
  };
  Buffers carve(ScratchArena& arena) const {
    return {arena.take<float>(chunk() * expand_.inner),
            arena.take<float>(chunk() * expand_.columns)};
  }

  // y = x + mlp(x) for any number of rows, which lie one behind the other; y may be x.
  void run(float* y, const float* x, int64_t rows, const Buffers& buffers) const {
    for (int64_t first = 0; first < rows; first += chunk()) {
      const int64_t count = std::min(chunk(), rows - first);
      const float* from = x + first * expand_.inner;
      const float* in = from;
      if (norm_.wanted) {
        NormalizeRows(buffers.normed, from, count, expand_.inner, norm_.epsilon);
        in = buffers.normed;
      }
      Gemm(buffers.hidden, expand_.columns, in, expand_.inner, count, expand_, {},
           [&](float* block, int64_t columns)
               HWY_ATTR { Activate(block, expand_.columns, count, columns, activation_); });
      Gemm(y + first * expand_.inner, expand_.inner, buffers.hidden, expand_.columns, count,
           contract_, {from, expand_.inner});
    }
  }

 private:
  PackedMatrix expand_;
  PackedMatrix contract_;
  Activation activation_;
  Norm norm_;
};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_MLP_INL_H_
