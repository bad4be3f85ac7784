#include "qna/kernels/dense_simd.h"

#include "qna/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/dense_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/mlp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// How rows are cut into tasks of whole tiles, about as many tiles to each. The cut changes no
// result: every row is computed on its own.
struct RowTasks {
  RowTasks(int64_t rows_in, int64_t most, int workers)
      : rows(rows_in), tiles((rows + kTileRows - 1) / kTileRows) {
    const int64_t tasks = (rows + most - 1) / most;
    // As many tasks for each worker.
    count = std::min(tiles, (tasks + workers - 1) / workers * workers);
  }
  int64_t rows, tiles, count;
  int64_t begin(int64_t task) const { return std::min(rows, task * tiles / count * kTileRows); }
  int64_t size(int64_t task) const { return begin(task + 1) - begin(task); }
  int64_t largest() const { return count == 0 ? 0 : (tiles + count - 1) / count * kTileRows; }
};

PackedWeights Pack(const MatrixArgs& args, Runtime& runtime) {
  ScratchArena size;
  CarveMatrix(size, args.inner, args.columns, args.type);
  PackedWeights packed(size.bytes());
  packed.inner = args.inner;
  packed.columns = args.columns;
  packed.type = args.type;
  FillMatrix(
      MatrixIn(packed), runtime,
      [&](int64_t k, int64_t c) {
        return c < args.columns ? args.weight[k * args.inner_stride + c * args.column_stride]
                                : 0.0f;
      },
      [&](int64_t c) { return args.bias == nullptr || c >= args.columns ? 0.0f : args.bias[c]; });
  return packed;
}

void Dense(const DenseArgs& args, Runtime& runtime) {
  const PackedMatrix weights = MatrixIn(*args.weights);
  const int64_t inner = weights.inner;
  const int64_t columns = weights.columns;
  const RowTasks tasks(args.rows, ChunkRows(inner + columns), runtime.workers());
  // An activation comes before the residual, so both together need a place in between.
  const bool staged = args.residual != nullptr && args.activation != Activation::kNone;
  const int64_t buffer_floats = (args.norm.wanted ? inner : 0) + (staged ? columns : 0);
  auto* buffers = static_cast<float*>(runtime.scratch(
      runtime.workers() * tasks.largest() * buffer_floats * sizeof(float) + kScratchAlignment));
  runtime.for_each(tasks.count, [&](int64_t task, int worker) HWY_ATTR {
    const int64_t rows = tasks.size(task);
    const float* x = args.x + tasks.begin(task) * inner;
    float* y = args.y + tasks.begin(task) * columns;
    float* buffer = buffers + worker * tasks.largest() * buffer_floats;
    if (args.norm.wanted) {
      NormalizeRows(buffer, x, rows, inner, args.norm.epsilon);
      x = buffer;
      buffer += tasks.largest() * inner;
    }
    const float* residual =
        args.residual == nullptr ? nullptr : args.residual + tasks.begin(task) * columns;
    float* out = staged ? buffer : y;
    const auto activate = [&](float* block, int64_t count)
                              HWY_ATTR { Activate(block, columns, rows, count, args.activation); };
    Gemm(out, columns, x, inner, rows, weights, staged ? Residual{} : Residual{residual, columns},
         activate);
    if (staged) {
      for (int64_t i = 0; i < rows * columns; ++i) y[i] = residual[i] + out[i];
    }
  });
}

void Mlp(const MlpArgs& args, Runtime& runtime) {
  const MlpRows mlp(*args.expand, *args.contract, args.activation, args.norm);
  const int64_t features = mlp.features();
  const bool projects = args.project != nullptr;
  const PackedMatrix project = projects ? MatrixIn(*args.project) : PackedMatrix{};
  const RowTasks tasks(args.rows, mlp.chunk(), runtime.workers());
  MlpRows::Buffers* workers = nullptr;
  const auto carve = [&](ScratchArena arena) {
    workers = arena.take_each(runtime.workers(), [&](ScratchArena& a) { return mlp.carve(a); });
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  runtime.for_each(tasks.count, [&](int64_t task, int worker) HWY_ATTR {
    const int64_t rows = tasks.size(task);
    const float* x = args.x + tasks.begin(task) * features;
    float* y = args.y + tasks.begin(task) * features;
    if (projects) {
      Gemm(y, features, args.mixed + tasks.begin(task) * project.inner, project.inner, rows,
           project, {x, features});
      x = y;
    }
    mlp.run(y, x, rows, workers[worker]);
  });
}

// Rows that share a pass over the weights: as many as the layer takes at a time.
void Product(const ProductArgs& args, Runtime& runtime) {
  const PackedWeights weights = Pack({.inner = args.inner,
                                      .columns = args.columns,
                                      .weight = args.b,
                                      .inner_stride = args.columns,
                                      .column_stride = 1,
                                      .bias = nullptr},
                                     runtime);
  const PackedMatrix b = MatrixIn(weights);
  constexpr int64_t kChunk = 256;
  runtime.for_each((args.rows + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
    const int64_t first = chunk * kChunk;
    Gemm(args.c + first * args.columns, args.columns, args.a + first * args.inner, args.inner,
         std::min(kChunk, args.rows - first), b);
  });
}

constexpr DenseKernels kDenseKernels = {&Pack, &Dense, &Mlp, &Product,
                                        static_cast<int>(hn::MaxLanes(FloatTag()))};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(DenseKernels, dense_kernels, kDenseKernels)
}  // namespace qna::kernels
#endif
