#include "qna/kernels/qna_layer_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/qna_layer_backward_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/activation_gradient-inl.h"
#include "qna/kernels/maps-inl.h"
#include "qna/kernels/outer_product-inl.h"
#include "qna/kernels/window_backward_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// Partial sums of weight gradients, one set per task, may take this much together,
constexpr int64_t kPartialBytes = 32 << 20;
// and fewer pixels than these do not pay for a set of their own.
constexpr int64_t kLeastTaskPixels = 96;

// The ends of the layer's backward pass. In: dz = dy Wo^T, several rows at a time. Out: dx, and the
// sums x^T d[v | s] and z^T dy, for which z is computed again on the way.
template <typename T>
struct QnALayerEnds {
  struct Worker {
    explicit Worker(const QnALayerEnds& ends)
        : in_product(ends.in_shape), out_product(ends.out_shape) {}
    // A row is as long as the widest strip has windows, or columns.
    float* dz = nullptr;       // [outputs][step_rows][windows][value_floats]
    float* z = nullptr;        // of the current row's own windows, planes as far apart as dz's
    float* pending = nullptr;  // [pending_rows][columns][record]
    float* wide = nullptr;     // rows of dy or dx in float32
    float* scaled = nullptr;   // drop_factor dy [step_rows][windows][out_features]
    float* normed = nullptr;   // norm(x) [pending_rows][columns][in_features]
    float* factors = nullptr;  // of the norm [pending_rows][columns]
    double* row = nullptr;     // of a sum over all tasks
    OuterProduct in_product;
    OuterProduct out_product;
  };

  struct Gradient {
    const float* row(int64_t image, int64_t i, int64_t end, const ColumnStrip& strip) {
      if (image != filled_image || strip.own_window != filled_window || i < first || i >= next) {
        filled_image = image;
        filled_window = strip.own_window;
        first = i;
        next = std::min(end, i + ends.step_rows);
        fill(strip);
      }
      return worker.dz + (i - first) * strip.windows() * ends.layout.value_floats;
    }
    float* z(int64_t) { return worker.z; }
    void done(int64_t image, int64_t i, const ColumnStrip& strip) {
      const WindowShape& s = ends.args.shape;
      if (ends.args.drop_factor != nullptr) {
        const int64_t features = ends.args.out_features;
        const int64_t window = (i - first) * strip.windows() + strip.before();
        worker.out_product.add(worker.z, ends.layout.value_floats,
                               worker.scaled + window * features, features, strip.own_windows());
        return;
      }
      for (int64_t l = 0; l < s.outputs(); ++l) {
        worker.out_product.add(worker.z + l * query_stride, ends.layout.value_floats,
                               ends.grad_row(image, i, l, strip.own_window), ends.grad_stride(),
                               strip.own_windows());
      }
    }
    void finish() { worker.out_product.finish(); }

    void fill(const ColumnStrip& strip) {
      const WindowShape& s = ends.args.shape;
      const int64_t windows = strip.windows();
      // Whole rows lie one behind the other.
      const bool together = ends.args.upsample == 1 && windows == s.out_width();
      const int64_t rows = together ? next - first : 1;  // at a time
      for (int64_t l = 0; l < s.outputs(); ++l)
        for (int64_t r = first; r < next; r += rows) {
          const int64_t window = (r - first) * windows;
          project(ends.grad_row(filled_image, r, l, strip.first_window), rows * windows, window,
                  worker.dz + l * query_stride + window * ends.layout.value_floats);
        }
    }
    // `window`: of those that are filled, the first one.
    void project(const T* dy, int64_t pixels, int64_t window, float* dz) {
      const int64_t features = ends.args.out_features;
      if constexpr (std::is_same_v<T, float>) {
        if (ends.args.drop_factor != nullptr) {
          const float drop_factor = ends.args.drop_factor[filled_image];
          float* scaled = worker.scaled + window * features;
          for (int64_t i = 0; i < pixels * features; ++i) scaled[i] = drop_factor * dy[i];
          dy = scaled;
        }
        Gemm(dz, ends.layout.value_floats, dy, ends.grad_stride(), pixels, ends.out_transposed);
      } else {
        for (int64_t j = 0; j < pixels; ++j) {
          WidenRow(worker.wide + j * features, dy + j * ends.grad_stride(), features);
        }
        Gemm(dz, ends.layout.value_floats, worker.wide, features, pixels, ends.out_transposed);
      }
    }

    const QnALayerEnds& ends;
    Worker& worker;
    int64_t query_stride;
    // Rows [first, next) of the strip with this first own window are in worker.dz.
    int64_t filled_image = -1, filled_window = -1, first = 0, next = 0;
  };

  struct Sink {
    void take(const Rectangle& r, const float* records) {
      if (ends.pending_rows == 1 || r.columns < ends.args.shape.width) return use(r, records);
      if (count > 0 && (r.image != pending.image || r.row != pending.row + count)) flush();
      if (count == 0) pending = r;
      const int64_t row_floats = r.columns * ends.layout.record();
      std::memcpy(worker.pending + count * row_floats, records, row_floats * sizeof(float));
      if (++count == ends.pending_rows) flush();
    }
    void finish() {
      flush();
      worker.in_product.finish();
    }

    void flush() {
      pending.rows = count;
      if (count > 0) use(pending, worker.pending);
      count = 0;
    }
    // dx = d[v | s] [Wv | A]^T and the sum for the weights; of one row, or of whole rows.
    void use(const Rectangle& r, const float* records) {
      const QnALayerBackwardArgs<T>& args = ends.args;
      const int64_t pixels = r.rows * r.columns;
      const int64_t record = ends.layout.record();
      const int64_t first_pixel =
          (r.image * args.shape.height + r.row) * args.shape.width + r.column;
      const int64_t first = first_pixel * args.in_features;
      const T* x = args.x + first;
      if constexpr (std::is_same_v<T, float>) {
        if (args.norm.wanted) {
          normalize(x, pixels, first_pixel);
          x = worker.normed;
        }
      }
      // Masked pixels have no gradient, and x may hold anything there: leave them out.
      for (int64_t begin = 0; begin < pixels;) {
        int64_t end = args.mask == nullptr ? pixels : begin;
        while (end < pixels && args.mask[first_pixel + end] != 0) ++end;
        worker.in_product.add(x + begin * args.in_features, args.in_features,
                              records + begin * record, record, end - begin);
        begin = end + 1;
      }
      if (args.grad_x == nullptr) return;
      if constexpr (std::is_same_v<T, float>) {
        float* dx = args.grad_x + first;
        const float* residual = args.residual_is_x ? args.grad_y + first : nullptr;
        if (args.norm.wanted) {
          Gemm(dx, args.in_features, records, record, pixels, ends.in_transposed);
          NormBackwardRows(dx, residual, dx, x, worker.factors, pixels, args.in_features);
        } else {
          Gemm(dx, args.in_features, records, record, pixels, ends.in_transposed,
               {residual, args.in_features});
        }
      } else {
        Gemm(worker.wide, args.in_features, records, record, pixels, ends.in_transposed);
        NarrowRow(args.grad_x + first, worker.wide, pixels * args.in_features);
      }
    }

    // What a masked pixel holds must not reach its gradient: as if it were constant.
    void normalize(const float* x, int64_t pixels, int64_t first_pixel) {
      const QnALayerBackwardArgs<T>& args = ends.args;
      NormalizeRows(worker.normed, x, pixels, args.in_features, args.norm.epsilon, worker.factors);
      for (int64_t n = 0; args.mask != nullptr && n < pixels; ++n) {
        if (args.mask[first_pixel + n] != 0) continue;
        std::fill_n(worker.normed + n * args.in_features, args.in_features, 0.0f);
        worker.factors[n] = 0.0f;
      }
    }

    const QnALayerEnds& ends;
    Worker& worker;
    Rectangle pending = {};  // the `count` rows in worker.pending
    int64_t count = 0;
  };

  QnALayerEnds(const QnALayerBackwardArgs<T>& args_in, const PackedLayout& layout_in,
               int worker_count)
      : args(args_in),
        layout(layout_in),
        value_map(layout.value_sources(saved_layout(args.shape))),
        score_map(layout.score_sources()),
        first_scores(layout.first_score_sources()),
        in_shape(args.in_features, layout.record(), args.grad_value_bias != nullptr),
        out_shape(layout.value_floats, args.out_features, args.grad_out_bias != nullptr),
        tasks(args.shape, 2 * layout.record() + layout.score_floats, layout.record(), most_tasks()),
        step_rows(std::min((kStepWindows - 1) / tasks.strip_windows + 1, args.shape.out_height())),
        pending_rows((kStepWindows - 1) / args.shape.width + 1),
        workers(worker_count, Worker(*this)),
        in_sums(tasks.count),
        out_sums(tasks.count) {}

  int64_t most_tasks() const {
    const int64_t bytes = (in_shape.floats() + out_shape.floats()) * int64_t{sizeof(float)};
    const int64_t pixels = args.shape.batch * args.shape.height * args.shape.width;
    return std::clamp<int64_t>(std::min(kPartialBytes / bytes, pixels / kLeastTaskPixels), 4,
                               kMostBackwardTasks);
  }

  void carve(ScratchArena& arena) {
    const int64_t lanes = Lanes();
    const WindowShape& s = args.shape;
    const int64_t in_vectors = (args.in_features + lanes - 1) / lanes;
    const int64_t value_vectors = layout.value_floats / lanes;
    in_data = arena.take<float>(layout.record() * in_vectors * lanes);
    out_data = arena.take<float>(args.out_features * layout.value_floats);
    zeros = arena.take<float>(std::max(in_vectors, value_vectors) * lanes);
    in_transposed = {in_data, zeros, layout.record(), in_vectors, args.in_features};
    out_transposed = {out_data, zeros, args.out_features, value_vectors, layout.value_floats};
    const int64_t windows = step_rows * tasks.strip_windows;
    const int64_t pixels = pending_rows * tasks.strip_columns;
    for (Worker& worker : workers) {
      worker.dz = arena.take<float>(s.outputs() * windows * layout.value_floats);
      worker.z = arena.take<float>(s.outputs() * windows * layout.value_floats);
      worker.pending = arena.take<float>(pending_rows == 1 ? 0 : pixels * layout.record());
      if constexpr (!std::is_same_v<T, float>) {
        worker.wide =
            arena.take<float>(std::max(windows * args.out_features, pixels * args.in_features));
      }
      worker.scaled =
          arena.take<float>(args.drop_factor == nullptr ? 0 : windows * args.out_features);
      const int64_t norm_rows = args.norm.wanted ? pixels : 0;
      worker.normed = arena.take<float>(norm_rows * args.in_features);
      worker.factors = arena.take<float>(norm_rows);
      worker.row = arena.take<double>(std::max(in_shape.stride(), out_shape.stride()));
      worker.in_product.carve(arena);
      worker.out_product.carve(arena);
    }
    for (float*& sum : in_sums) sum = arena.take<float>(in_shape.floats());
    for (float*& sum : out_sums) sum = arena.take<float>(out_shape.floats());
  }

  // Transposed weights, in packed order; a score that stands in several lanes counts once.
  void pack(Runtime& runtime) {
    const WindowShape& s = args.shape;
    const std::vector<int32_t> values = layout.value_sources({s.features(), s.head_dim, 1});
    std::fill_n(zeros, std::max(in_transposed.vectors, out_transposed.vectors) * Lanes(), 0.0f);
    PackMatrix(in_data, layout.record(), in_transposed.vectors, runtime, [&](int64_t k, int64_t c) {
      if (c >= args.in_features) return 0.0f;
      if (k < layout.value_floats) {
        return values[k] < 0 ? 0.0f : args.value_weight[c * s.features() + values[k]];
      }
      const int64_t source = first_scores[k - layout.value_floats];
      return source < 0 ? 0.0f : args.score_weight[c * s.scores() + source];
    });
    PackMatrix(out_data, args.out_features, out_transposed.vectors, runtime,
               [&](int64_t k, int64_t c) {
                 return values[c] < 0 ? 0.0f : args.out_weight[values[c] * args.out_features + k];
               });
  }

  bool drop(int64_t image, int64_t first, int64_t end) const {
    if (args.drop_factor == nullptr || args.drop_factor[image] != 0) return false;
    const int64_t row = args.shape.width * args.in_features;
    const int64_t begin = (image * args.shape.height + first) * row, count = (end - first) * row;
    if (args.grad_x == nullptr) return true;
    if (args.residual_is_x) {
      std::copy_n(args.grad_y + begin, count, args.grad_x + begin);
    } else {
      std::fill_n(args.grad_x + begin, count, T{});
    }
    return true;
  }

  // From the sums of all tasks, in order, to the gradients of the weights.
  void reduce(Runtime& runtime) const {
    const WindowShape& s = args.shape;
    const std::vector<int32_t> values = layout.value_sources({s.features(), s.head_dim, 1});
    runtime.for_each(args.in_features + (in_shape.ones ? 1 : 0), [&](int64_t k, int worker) {
      const double* row = sum_rows(in_sums, in_shape, k, worker);
      const bool is_bias = k == args.in_features;
      float* to = is_bias ? args.grad_value_bias : args.grad_value_weight + k * s.features();
      for (int64_t c = 0; c < layout.value_floats; ++c) {
        if (values[c] >= 0) to[values[c]] = static_cast<float>(row[c]);
      }
      for (int64_t c = 0; !is_bias && c < layout.score_floats; ++c) {
        if (first_scores[c] < 0) continue;
        args.grad_score_weight[k * s.scores() + first_scores[c]] =
            static_cast<float>(row[layout.value_floats + c]);
      }
    });
    runtime.for_each(layout.value_floats + (out_shape.ones ? 1 : 0), [&](int64_t k, int worker) {
      const bool is_bias = k == layout.value_floats;
      if (!is_bias && values[k] < 0) return;
      const double* row = sum_rows(out_sums, out_shape, k, worker);
      float* to =
          is_bias ? args.grad_out_bias : args.grad_out_weight + values[k] * args.out_features;
      for (int64_t c = 0; c < args.out_features; ++c) to[c] = static_cast<float>(row[c]);
    });
  }
  const double* sum_rows(const std::vector<float*>& sums, const OuterShape& shape, int64_t k,
                         int worker) const {
    double* HWY_RESTRICT row = workers[worker].row;
    const int64_t stride = shape.stride();
    std::fill_n(row, stride, 0.0);
    for (const float* sum : sums) {
      const float* HWY_RESTRICT part = sum + k * stride;
      for (int64_t c = 0; c < stride; ++c) row[c] += part[c];
    }
    return row;
  }

  // dy of query l of window (i, j); the row's next windows are grad_stride() apart.
  const T* grad_row(int64_t image, int64_t i, int64_t l, int64_t j) const {
    const int64_t f = args.upsample;
    const int64_t row = (image * args.shape.out_height() + i) * f + l / f;
    return args.grad_y + ((row * args.shape.out_width() + j) * f + l % f) * args.out_features;
  }
  int64_t grad_stride() const { return args.upsample * args.out_features; }

  ReadMaps<float> source(int) const {
    const int64_t stride = saved_layout(args.shape).pixel_stride;
    const float* scores = args.saved + args.shape.features();
    return {layout, value_map, score_map, args.saved,        stride,
            scores, stride,    args.mask, args.shape.height, args.shape.width};
  }
  Gradient gradient(int64_t task, int worker) {
    workers[worker].out_product.begin(out_sums[task], /*is_first=*/true);
    return {*this, workers[worker], step_rows * tasks.strip_windows * layout.value_floats};
  }
  Sink sink(int64_t task, int worker, bool is_first) {
    workers[worker].in_product.begin(in_sums[task], is_first);
    return {*this, workers[worker]};
  }

  const QnALayerBackwardArgs<T>& args;
  const PackedLayout& layout;
  const ChannelMap value_map, score_map;  // of `saved`
  const std::vector<int32_t> first_scores;
  const OuterShape in_shape, out_shape;
  const BackwardTasks tasks;
  const int64_t step_rows;     // output rows whose dz is made at a time
  const int64_t pending_rows;  // input rows whose dx is made at a time
  float* in_data;
  float* out_data;
  float* zeros;
  PackedMatrix in_transposed, out_transposed;
  std::vector<Worker> workers;
  std::vector<float*> in_sums, out_sums;  // per task
};

template <typename T>
void QnALayerBackward(const QnALayerBackwardArgs<T>& args, Runtime& runtime) {
  const PackedLayout layout(args.shape, Lanes(), ScorePlaces::kSideBySide, args.in_features,
                            args.out_features);
  QnALayerEnds<T> ends(args, layout, runtime.workers());
  StreamBackward(args.shape, layout, args.bias, args.tap_weights, ends, args.grad_bias,
                 args.grad_tap_weights, runtime);
  ends.reduce(runtime);
}

constexpr QnALayerBackwardKernels kQnALayerBackwardKernels = {
    &QnALayerBackward<float>, &QnALayerBackward<BFloat16>, &QnALayerBackward<Float16>};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(QnALayerBackwardKernels, qna_layer_backward_kernels,
                         kQnALayerBackwardKernels)
}  // namespace qna::kernels
#endif
