#include "qna/kernels/qna_layer_simd.h"

#include <optional>

#include "qna/kernels/qna_layer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/qna_layer_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/mlp-inl.h"
#include "qna/kernels/rows-inl.h"
#include "qna/kernels/window_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// The layer's weights in packed order, made once per call or kept by the caller.
struct QnALayerWeights {
  static QnALayerWeights carve(ScratchArena& arena, const PackedLayout& layout, int64_t in_features,
                               int64_t out_features, WeightType type) {
    QnALayerWeights w;
    w.in = CarveMatrix(arena, in_features, layout.record(), type);
    w.out = CarveMatrix(arena, layout.value_floats, out_features, type);
    return w;
  }

  template <typename T>
  void pack(const QnALayerArgs<T>& args, const PackedLayout& layout, Runtime& runtime) {
    const WindowShape& s = args.shape;
    const std::vector<int32_t> values = layout.value_sources({s.features(), s.head_dim, 1});
    const std::vector<int32_t> scores = layout.score_sources();
    // x [Wv | A]: columns in the order of a pixel's record.
    FillMatrix(
        in, runtime,
        [&](int64_t k, int64_t c) {
          const bool is_value = c < layout.value_floats;
          const int64_t source = is_value ? values[c] : scores[c - layout.value_floats];
          if (source < 0) return 0.0f;
          return is_value ? args.value_weight[k * s.features() + source]
                          : args.score_weight[k * s.scores() + source];
        },
        [&](int64_t c) {
          const bool has = c < layout.value_floats && values[c] >= 0 && args.value_bias != nullptr;
          return has ? args.value_bias[values[c]] : 0.0f;
        });
    // z Wo: rows in the order of packed values.
    FillMatrix(
        out, runtime,
        [&](int64_t k, int64_t c) {
          return values[k] < 0 || c >= out.columns ? 0.0f
                                                   : args.out_weight[values[k] * out.columns + c];
        },
        [&](int64_t c) {
          return args.out_bias == nullptr || c >= out.columns ? 0.0f : args.out_bias[c];
        });
  }

  PackedMatrix in;
  PackedMatrix out;
};

// records = x [Wv | A]
template <typename T>
struct ProjectIn {
  void fill(const Rectangle& r, float* records, const Rectangle& owned) {
    multiply(r, records);
    if (args.saved != nullptr) save(r, records, owned);
  }
  void multiply(const Rectangle& r, float* records) {
    const int64_t row_floats = args.in_features * args.shape.width;
    const T* x =
        args.x + (r.image * args.shape.height + r.row) * row_floats + r.column * args.in_features;
    const int64_t record = weights.in.columns;
    if (r.columns == args.shape.width) {  // whole rows lie one behind the other
      project(x, r.rows * r.columns, records, record);
      return;
    }
    for (int64_t y = 0; y < r.rows; ++y) {
      project(x + y * row_floats, r.columns, records + y * r.columns * record, record);
    }
  }
  void project(const T* x, int64_t pixels, float* records, int64_t record) {
    if (std::is_same_v<T, float> && !args.norm.wanted) {
      Gemm(records, record, reinterpret_cast<const float*>(x), args.in_features, pixels,
           weights.in);
      return;
    }
    for (int64_t n = 0; n < pixels; n += kChunk) {
      const int64_t count = std::min(kChunk, pixels - n);
      prepare(x + n * args.in_features, count);
      Gemm(records + n * record, record, buffer, args.in_features, count, weights.in);
    }
  }
  // buffer = norm(x) in float32
  void prepare(const T* x, int64_t count) {
    const float* from = buffer;
    if constexpr (std::is_same_v<T, float>) {
      from = x;
    } else {
      WidenRow(buffer, x, count * args.in_features);
    }
    if (args.norm.wanted) {
      NormalizeRows(buffer, from, count, args.in_features, args.norm.epsilon);
    }
  }
  // Writes the owned part of what was just projected.
  void save(const Rectangle& r, const float* records, const Rectangle& owned) {
    const WindowShape& s = args.shape;
    const int64_t record = weights.in.columns;
    const int64_t begin_x = std::max(r.column, owned.column);
    const int64_t end_x = std::min(r.column + r.columns, owned.column + owned.columns);
    const int64_t begin_y = std::max(r.row, owned.row);
    const int64_t end_y = std::min(r.row + r.rows, owned.row + owned.rows);
    for (int64_t y = begin_y; y < end_y; ++y)
      for (int64_t x = begin_x; x < end_x; ++x) {
        const float* from = records + ((y - r.row) * r.columns + x - r.column) * record;
        float* to =
            args.saved + ((r.image * s.height + y) * s.width + x) * (s.features() + s.scores());
        value_map->unpack(to, from);
        score_map->unpack(to + s.features(), from + value_map->count());
      }
  }
  static constexpr int64_t kChunk = 96;  // pixels normalised or converted to float32 at a time
  const QnALayerArgs<T>& args;
  const QnALayerWeights& weights;
  const ChannelMap* value_map;  // of `saved`; null where nothing is
  const ChannelMap* score_map;
  const uint8_t* mask;
  float* buffer;  // [kChunk][in_features]
};

// y = z Wo
template <typename T>
struct ProjectOut {
  void take(const Rectangle& r, const float* z, int64_t z_query_stride) {
    const int64_t f = args.upsample;
    const int64_t out_columns = args.shape.out_width() * f;
    const int64_t value_floats = weights.out.inner;
    for (int64_t l = 0; l < args.shape.outputs(); ++l)
      for (int64_t i = 0; i < r.rows; ++i) {
        const int64_t row = (r.image * args.shape.out_height() + r.row + i) * f + l / f;
        const int64_t pixel = row * out_columns + r.column * f + l % f;
        // Whole rows of a plain output lie one behind the other.
        const bool all = f == 1 && r.columns == out_columns;
        project(z + l * z_query_stride + i * r.columns * value_floats,
                all ? r.rows * r.columns : r.columns, pixel, r.image);
        if (all) break;
      }
  }
  // The outputs from `pixel` on, `upsample` pixels apart.
  void project(const float* z, int64_t pixels, int64_t pixel, int64_t image) {
    const int64_t stride = args.upsample * args.out_features;
    T* y = args.y + pixel * args.out_features;
    const T* residual =
        args.residual == nullptr ? nullptr : args.residual + pixel * args.out_features;
    if constexpr (std::is_same_v<T, float>) {
      if (args.drop_factor != nullptr) {
        Gemm(y, stride, z, weights.out.inner, pixels, weights.out);
        const float drop_factor = args.drop_factor[image];
        for (int64_t i = 0; i < pixels * stride; ++i) {
          y[i] = (residual == nullptr ? 0.0f : residual[i]) + drop_factor * y[i];
        }
        return;
      }
      Gemm(y, stride, z, weights.out.inner, pixels, weights.out, {residual, stride});
      if (mlp != nullptr) mlp->run(y, y, pixels, mlp_buffers);
    } else {
      for (int64_t n = 0; n < pixels; n += kChunk) {
        const int64_t count = std::min(kChunk, pixels - n);
        Gemm(buffer, args.out_features, z + n * weights.out.inner, weights.out.inner, count,
             weights.out);
        for (int64_t i = 0; i < count; ++i) {
          float* row = buffer + i * args.out_features;
          const int64_t at = (n + i) * stride;
          for (int64_t c = 0; residual != nullptr && c < args.out_features; ++c) {
            row[c] += to_float(residual[at + c]);
          }
          NarrowRow(y + at, row, args.out_features);
        }
      }
    }
  }
  static constexpr int64_t kChunk = 48;
  const QnALayerArgs<T>& args;
  const QnALayerWeights& weights;
  float* buffer;       // [kChunk][out_features]
  const MlpRows* mlp;  // or null
  MlpRows::Buffers mlp_buffers;
};

// y of an image that is dropped, which is never up-sampled.
template <typename T>
void CopyResidual(const QnALayerArgs<T>& args, const Rectangle& r) {
  for (int64_t i = 0; i < r.rows; ++i) {
    const int64_t row = (r.image * args.shape.out_height() + r.row + i) * args.shape.out_width();
    const int64_t first = (row + r.column) * args.out_features;
    const int64_t count = r.columns * args.out_features;
    if (args.residual == nullptr) {
      std::fill_n(args.y + first, count, T{});
    } else {
      std::copy_n(args.residual + first, count, args.y + first);
    }
  }
}

// Packed weights and tables in one piece of memory, which may outlive the call.
struct QnALayerPack {
  static QnALayerPack carve(ScratchArena& arena, const WindowShape& shape,
                            const PackedLayout& layout, int64_t in_features, int64_t out_features,
                            WeightType type = WeightType::kFloat32) {
    QnALayerPack pack;
    pack.weights = QnALayerWeights::carve(arena, layout, in_features, out_features, type);
    pack.table_memory = arena.take<float>(TableFloats(shape, layout));
    return pack;
  }
  QnALayerWeights weights;
  float* table_memory;
};

template <typename T>
PackedLayout LayoutOf(const QnALayerArgs<T>& args) {
  return PackedLayout(args.shape, Lanes(), ScorePlaces::kSideBySide, args.in_features,
                      args.out_features);
}

template <typename T>
PackedWeights PackQnALayer(const QnALayerArgs<T>& args, Runtime& runtime) {
  auto shared = std::make_shared<const PackedLayout>(LayoutOf(args));
  const PackedLayout& layout = *shared;
  const auto carve = [&](ScratchArena& arena) {
    return QnALayerPack::carve(arena, args.shape, layout, args.in_features, args.out_features,
                               args.weight_type);
  };
  ScratchArena size;
  carve(size);
  PackedWeights packed(size.bytes());
  packed.inner = args.in_features;
  packed.columns = args.out_features;
  packed.type = args.weight_type;
  packed.layout = std::move(shared);
  ScratchArena arena(packed.memory());
  QnALayerPack pack = carve(arena);
  pack.weights.pack(args, layout, runtime);
  MakeTables(args.shape, layout, args.bias, args.tap_weights, pack.table_memory);
  return packed;
}

template <typename T>
void QnALayer(const QnALayerArgs<T>& args, Runtime& runtime) {
  std::optional<PackedLayout> own_layout;
  if (args.packed == nullptr) own_layout = LayoutOf(args);
  const PackedLayout& layout = args.packed == nullptr ? *own_layout : *args.packed->layout;
  const StreamTasks tasks(args.shape, layout.record() + layout.score_floats, runtime.workers());
  std::optional<ChannelMap> value_map, score_map;
  if (args.saved != nullptr) {
    value_map.emplace(layout.value_sources(saved_layout(args.shape)));
    score_map.emplace(layout.score_sources());
  }
  WindowTables tables;
  const WindowPlan plan(args.shape, tables, layout);

  struct Worker {
    StreamScratch stream;
    float* in;
    float* out;
    MlpRows::Buffers mlp;
  };
  std::optional<MlpRows> mlp;
  if (args.mlp != nullptr) {
    mlp.emplace(*args.mlp->expand, *args.mlp->contract, args.mlp->activation, args.mlp->norm);
  }
  QnALayerPack pack;
  Worker* workers = nullptr;
  const auto carve = [&](ScratchArena arena) {
    if (args.packed == nullptr) {
      pack = QnALayerPack::carve(arena, args.shape, layout, args.in_features, args.out_features);
    }
    workers = arena.take_each(runtime.workers(), [&](ScratchArena& a) {
      Worker worker{};
      worker.stream = StreamScratch::carve(a, plan, tasks);
      worker.in = a.take<float>(ProjectIn<T>::kChunk * args.in_features);
      if constexpr (!std::is_same_v<T, float>) {
        worker.out = a.take<float>(ProjectOut<T>::kChunk * args.out_features);
      }
      if (mlp.has_value()) worker.mlp = mlp->carve(a);
      return worker;
    });
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  if (args.packed == nullptr) {
    pack.weights.pack(args, layout, runtime);
    tables = MakeTables(args.shape, layout, args.bias, args.tap_weights, pack.table_memory);
  } else {
    ScratchArena arena(args.packed->memory());
    pack = QnALayerPack::carve(arena, args.shape, layout, args.in_features, args.out_features,
                               args.packed->type);
    tables = TablesIn(pack.table_memory, args.shape, layout);
  }
  if (args.saved != nullptr && !sees_every_pixel(args.shape)) {
    // Pixels that no window sees are never projected.
    const WindowShape& s = args.shape;
    std::fill_n(args.saved, s.batch * s.height * s.width * (s.features() + s.scores()), 0.0f);
  }
  runtime.for_each(tasks.count, [&](int64_t task, int index) {
    const Worker& worker = workers[index];
    if (args.drop_factor != nullptr && args.drop_factor[tasks.image(task)] == 0) {
      CopyResidual(args, tasks.outputs(args.shape, task));
      return;
    }
    ProjectIn<T> source{args,
                        pack.weights,
                        value_map.has_value() ? &*value_map : nullptr,
                        score_map.has_value() ? &*score_map : nullptr,
                        args.mask,
                        worker.in};
    ProjectOut<T> sink{args, pack.weights, worker.out, mlp.has_value() ? &*mlp : nullptr,
                       worker.mlp};
    StreamTask(plan, tasks, task, worker.stream, source, sink);
  });
}

#if QNA_SERVING_ONLY
constexpr QnALayerKernels kQnALayerKernels = {{&QnALayer<float>, &PackQnALayer<float>}, {}, {}};
#else
constexpr QnALayerKernels kQnALayerKernels = {{&QnALayer<float>, &PackQnALayer<float>},
                                              {&QnALayer<BFloat16>, &PackQnALayer<BFloat16>},
                                              {&QnALayer<Float16>, &PackQnALayer<Float16>}};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(QnALayerKernels, qna_layer_kernels, kQnALayerKernels)
}  // namespace qna::kernels
#endif
