// The backward pass of self-attention in windows, for some images at a time.

#if defined(QNA_KERNELS_SELF_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_SELF_ATTENTION_BACKWARD_INL_H_
#undef QNA_KERNELS_SELF_ATTENTION_BACKWARD_INL_H_
#else
#define QNA_KERNELS_SELF_ATTENTION_BACKWARD_INL_H_
#endif

#include <vector>

#include "qna/kernels/activation_gradient-inl.h"
#include "qna/kernels/outer_sum-inl.h"
#include "qna/kernels/window_self_attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// One worker's memory: a window of one head, and a chunk of its queries with their scores.
struct AttentionGradientScratch {
  AttentionGradientScratch(int64_t tokens_in, int64_t dim_in)
      : tokens(tokens_in),
        dim(dim_in),
        chunk(chunk_rows(tokens)),
        key_sum(tokens, dim, chunk),
        value_sum(tokens, dim, chunk) {}

  // Few enough queries that their scores, score gradients and both packed stay in the second-level
  // cache; as many in each chunk.
  static int64_t chunk_rows(int64_t tokens) {
    const int64_t fit = (64 << 10) / (tokens * int64_t{sizeof(float)});
    const int64_t most =
        std::clamp<int64_t>(fit / kTileRows * kTileRows, kTileRows, 16 * kTileRows);
    const int64_t count = (tokens - 1) / most + 1;
    return ((tokens - 1) / count / kTileRows + 1) * kTileRows;
  }

  void carve(ScratchArena& arena) {
    const int64_t lanes = Lanes();
    const int64_t padded = (tokens + lanes - 1) / lanes * lanes;
    zeros = arena.take<float>(std::max(padded, dim + lanes));
    for (float** rows : {&queries, &keys, &values, &grad, &out}) {
      *rows = arena.take<float>(tokens * dim);
    }
    for (TokenMatrix* matrix : {&keys_across, &values_across}) {
      matrix->carve(arena, dim, padded, zeros);
    }
    key_rows.carve(arena, tokens, dim, zeros);
    weights = arena.take<float>(chunk * padded);
    grad_weights = arena.take<float>(chunk * padded);
    grad_queries = arena.take<float>(chunk * dim);
    key_sum.carve(arena);
    value_sum.carve(arena);
  }

  int64_t tokens, dim, chunk;
  float* zeros;
  float *queries, *keys, *values, *grad,
      *out;  // [tokens][dim]; queries scaled, grad and out of out
  TokenMatrix keys_across, values_across, key_rows;
  float* weights;       // [chunk][tokens, padded]
  float* grad_weights;  // dw, then ds
  float* grad_queries;  // [chunk][dim]
  OuterSum key_sum;     // ds^T q
  OuterSum value_sum;   // w^T dout
};

inline void GatherWindow(const WindowSelfAttentionBackwardArgs<float>& backward,
                         const AttentionWindow& window, const AttentionGradientScratch& s) {
  const WindowSelfAttentionArgs<float>& args = backward.forward;
  const int64_t dim = args.head_dim;
  const int64_t features = args.heads * dim;
  for (int64_t t = 0; t < window.tokens(); ++t) {
    const int64_t pixel = window.pixel(args, t);
    const float* HWY_RESTRICT from = args.qkv + pixel * 3 * features + window.head * dim;
    const int64_t at = pixel * features + window.head * dim;
    const int64_t grad_at = window.grad_pixel(args, t) * features + window.head * dim;
    for (int64_t k = 0; k < dim; ++k) s.queries[t * dim + k] = from[k] * args.scale;
    std::copy_n(backward.grad_out + grad_at, dim, s.grad + t * dim);
    std::copy_n(args.out + at, dim, s.out + t * dim);
    // A masked pixel is no key. Its weight, 0, times what stands there might be NaN.
    if (args.mask != nullptr && args.mask[pixel] == 0) {
      std::fill_n(s.keys + t * dim, dim, 0.0f);
      std::fill_n(s.values + t * dim, dim, 0.0f);
    } else {
      std::copy_n(from + features, dim, s.keys + t * dim);
      std::copy_n(from + 2 * features, dim, s.values + t * dim);
    }
  }
}

// w = e / sum; ds = w (dw - <dout, out>). Both rows are padded.
inline void ScoreGradient(float* HWY_RESTRICT weights, float* HWY_RESTRICT grad, float sum,
                          float mean, int64_t padded) {
  const FloatTag d;
  const FloatVector factor = hn::Set(d, sum == 0.0f ? 0.0f : 1.0f / sum);
  const FloatVector shift = hn::Set(d, mean);
  for (int64_t c = 0; c < padded; c += Lanes()) {
    const FloatVector w = hn::Mul(hn::Load(d, weights + c), factor);
    hn::Store(w, d, weights + c);
    hn::Store(hn::Mul(w, hn::Sub(hn::Load(d, grad + c), shift)), d, grad + c);
  }
}

// Adds the score gradients of a query to the table.
inline void AddToTable(const WindowSelfAttentionArgs<float>& args, const AttentionWindow& window,
                       int64_t token, const float* HWY_RESTRICT grad, float* HWY_RESTRICT table) {
  const int64_t row_floats = 2 * args.bias_w - 1;
  float* HWY_RESTRICT to = table + (args.bias_h - 1 - token / window.columns) * row_floats +
                           args.bias_w - 1 - token % window.columns;
  for (int64_t row = 0; row < window.rows; ++row) {
    float* HWY_RESTRICT cells = to + row * row_floats;
    const float* HWY_RESTRICT from = grad + row * window.columns;
    for (int64_t c = 0; c < window.columns; ++c) cells[c] += from[c];
  }
}

// table: [2 bias_h - 1][2 bias_w - 1] of this window alone, or null.
inline void BackwardWindow(const WindowSelfAttentionBackwardArgs<float>& backward,
                           const AttentionWindow& window, AttentionGradientScratch& s,
                           float* table) {
  const WindowSelfAttentionArgs<float>& args = backward.forward;
  const int64_t dim = args.head_dim;
  const int64_t features = args.heads * dim;
  const int64_t tokens = window.tokens();
  const int64_t padded = (tokens + Lanes() - 1) / Lanes() * Lanes();
  GatherWindow(backward, window, s);
  std::fill_n(s.zeros, std::max(padded, dim + Lanes()), 0.0f);
  const auto rows_of = [&](const float* rows) {
    return [rows, dim](int64_t t) { return rows + t * dim; };
  };
  s.keys_across.pack_transposed(tokens, dim, s.zeros, rows_of(s.keys));
  s.values_across.pack_transposed(tokens, dim, s.zeros, rows_of(s.values));
  s.key_rows.pack(tokens, dim, s.zeros, rows_of(s.keys));

  for (int64_t first = 0; first < tokens; first += s.chunk) {
    const int64_t rows = std::min(s.chunk, tokens - first);
    const float* queries = s.queries + first * dim;
    const float* grad = s.grad + first * dim;
    for (int64_t r = 0; r < rows; ++r) {
      FillScores(args, window, first + r, s.weights + r * padded, padded);
    }
    Gemm(s.weights, padded, queries, dim, rows, s.keys_across.matrix, {s.weights, padded});
    Gemm(s.grad_weights, padded, grad, dim, rows, s.values_across.matrix);
    for (int64_t r = 0; r < rows; ++r) {
      float* weights = s.weights + r * padded;
      float* grad_weights = s.grad_weights + r * padded;
      MaskScores(args, window, weights);
      const float sum = Exponentiate(weights, padded);
      const float mean = DotRow(grad + r * dim, s.out + (first + r) * dim, dim);
      ScoreGradient(weights, grad_weights, sum, mean, padded);
      if (table != nullptr) AddToTable(args, window, first + r, grad_weights, table);
    }
    Gemm(s.grad_queries, dim, s.grad_weights, padded, rows, s.key_rows.matrix);
    for (int64_t r = 0; r < rows; ++r) {
      float* HWY_RESTRICT to =
          backward.grad_qkv + window.grad_pixel(args, first + r) * 3 * features + window.head * dim;
      for (int64_t c = 0; c < dim; ++c) to[c] = s.grad_queries[r * dim + c] * args.scale;
    }
    const auto add = [&](const OuterSum& sum, const float* a, const float* b) {
      sum.pack_a(0, a, padded, rows);
      sum.pack_b(0, b, dim, rows);
      for (int64_t task = 0; task < sum.tasks(); ++task) sum.add(task, rows, first == 0);
    };
    add(s.key_sum, s.grad_weights, queries);
    add(s.value_sum, s.weights, grad);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    float* to = backward.grad_qkv + window.grad_pixel(args, t) * 3 * features + window.head * dim;
    std::copy_n(s.key_sum.row(t), dim, to + features);
    std::copy_n(s.value_sum.row(t), dim, to + 2 * features);
  }
}

// With each worker's memory, and the gradient of the bias as a sum over all that ran.
class AttentionGradient {
 public:
  // At most so many images at a time.
  AttentionGradient(const WindowSelfAttentionArgs<float>& args, int64_t most_images, int workers)
      : most_tasks_(most_images * AttentionTasks(args).of_an_image()),
        cells_(args.bias == nullptr ? 0 : (2 * args.bias_h - 1) * (2 * args.bias_w - 1)),
        bias_(args.heads * cells_, 0.0),
        workers_(workers, AttentionGradientScratch(args.window_h * args.window_w, args.head_dim)) {}

  void carve(ScratchArena& arena) {
    tables_ = arena.take<float>(most_tasks_ * cells_);
    for (AttentionGradientScratch& worker : workers_) worker.carve(arena);
  }

  // Gradients of the map hold the images of `tasks` alone.
  void run(const WindowSelfAttentionBackwardArgs<float>& backward, const AttentionTasks& tasks,
           Runtime& runtime) {
    runtime.for_each(tasks.count(), [&](int64_t task, int worker) {
      float* table = cells_ == 0 ? nullptr : tables_ + task * cells_;
      std::fill_n(table, cells_, 0.0f);
      BackwardWindow(backward, tasks.at(task), workers_[worker], table);
    });
    if (cells_ == 0) return;
    const int64_t heads = backward.forward.heads;
    runtime.for_each(heads, [&](int64_t head, int) {
      double* total = bias_.data() + head * cells_;
      for (int64_t task = head; task < tasks.count(); task += heads)
        for (int64_t i = 0; i < cells_; ++i) total[i] += tables_[task * cells_ + i];
    });
  }

  void write_bias(float* grad_bias) const {
    for (const double value : bias_) *grad_bias++ = static_cast<float>(value);
  }

 private:
  int64_t most_tasks_, cells_;
  float* tables_ = nullptr;   // [tasks][cells]
  std::vector<double> bias_;  // [heads][cells]
  std::vector<AttentionGradientScratch> workers_;
};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_SELF_ATTENTION_BACKWARD_INL_H_
