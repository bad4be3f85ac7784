// Streams an image through the backward pass, in bands and strips (see backward_bands.h). Every
// task has its own sums for bias and tap weights, which are added at the end, in a fixed order.

#if defined(QNA_KERNELS_WINDOW_BACKWARD_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_WINDOW_BACKWARD_STREAM_INL_H_
#undef QNA_KERNELS_WINDOW_BACKWARD_STREAM_INL_H_
#else
#define QNA_KERNELS_WINDOW_BACKWARD_STREAM_INL_H_
#endif

#include "qna/kernels/backward_bands.h"
#include "qna/kernels/scratch.h"
#include "qna/kernels/window_backward-inl.h"
#include "qna/kernels/window_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// The parts that differ between window attention and the whole layer:
//   Ends::tasks: how the pass is cut.
//   Ends::carve(arena): takes its own scratch; pack(runtime): fills it, once.
//   Ends::source(worker).fill(rectangle, records), .mask: packed rows of values and scores.
//   Ends::gradient(task, worker): row(image, row, end, strip) gives the packed dz of the strip's
//     windows in an output row, a plane per query `query_stride` apart (rows come in order, up to
//     `end`); z(row) where the z of its own windows is wanted, or null; done(image, row, strip) is
//     told when the row is finished, finish() ends the task.
//   Ends::drop(image, first, end): false, or the image takes no part, and rows [first, end) of its
//     gradient are written.
//   Ends::sink(task, worker, is_first): take(rectangle, records) gets finished rows of gradients,
//   in
//     order; finish() ends the task. is_first: false for the rows between two bands, at the end.
template <typename Ends>
void StreamBackward(const WindowShape& s, const PackedLayout& layout, const float* bias,
                    const float* tap_weights, Ends& ends, float* grad_bias, float* grad_tap_weights,
                    Runtime& runtime) {
  const BackwardTasks& tasks = ends.tasks;
  // Rows are filled several at a time on narrow maps (see kStepWindows).
  const int64_t fill_rows =
      std::min((kStepWindows - 1) / std::max<int64_t>(1, tasks.strip_columns) + 1, s.height);
  const int64_t ring_rows = std::min(s.span_h() + fill_rows - 1, s.height);
  const int64_t most_row_floats = tasks.strip_columns * layout.record();
  const int64_t table_floats = s.taps() * layout.score_floats;
  struct Worker {
    float* records;
    float* exps;
    float* grads;
    float* row_bias;  // of one row of windows: sums of sums keep float32 exact enough
    float* row_weight;
    float* window;
    const float** record_rows;
    const float** exp_rows;
    float** grad_rows;
  };
  struct Task {
    BandEdges edges;
    float* bias;
    float* weight;
  };
  WindowTables tables;
  const WindowPlan plan(s, tables, layout);
  float* table_memory = nullptr;
  std::vector<Worker> workers(runtime.workers());
  std::vector<Task> parts(tasks.count);
  const auto carve = [&](ScratchArena arena) {
    table_memory = arena.take<float>(TableFloats(s, layout));
    for (Worker& worker : workers) {
      worker.records = arena.take<float>(ring_rows * most_row_floats);
      worker.exps = arena.take<float>(ring_rows * tasks.strip_columns * layout.score_floats);
      worker.grads = arena.take<float>(ring_rows * most_row_floats);
      worker.row_bias = arena.take<float>(table_floats);
      worker.row_weight = arena.take<float>(table_floats);
      worker.window = arena.take<float>(BackwardScratch::floats(s, layout.most_score_vectors));
      worker.record_rows = arena.take<const float*>(s.kernel_h);
      worker.exp_rows = arena.take<const float*>(s.kernel_h);
      worker.grad_rows = arena.take<float*>(s.kernel_h);
    }
    for (int64_t task = 0; task < tasks.count; ++task) {
      Task& part = parts[task];
      part.edges.head = arena.take<float>(tasks.head_rows(task) * most_row_floats);
      part.edges.tail = arena.take<float>(tasks.tail_rows(task) * most_row_floats);
      part.bias = arena.take<float>(table_floats);
      part.weight = arena.take<float>(table_floats);
    }
    ends.carve(arena);
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  tables = MakeTables(s, layout, bias, tap_weights, table_memory);
  ends.pack(runtime);

  const auto give = [&](auto& sink, int64_t image, const ColumnStrip& strip, int64_t row,
                        const float* grads) {
    sink.take(Rectangle{image, row, 1, strip.own_column, strip.own_columns},
              grads + strip.own_offset() * layout.record());
  };
  const auto run_rectangle = [&](const Worker& worker, const Task& part, auto& source,
                                 auto& gradient, auto& sink, int64_t image,
                                 const ColumnStrip& strip, int64_t band) {
    const int64_t row_floats = strip.columns * layout.record();
    const int64_t exp_floats = strip.columns * layout.score_floats;
    const GradientRing ring{worker.grads, ring_rows, row_floats};
    const auto records = [&](int64_t y) { return worker.records + y % ring_rows * row_floats; };
    const auto exps = [&](int64_t y) { return worker.exps + y % ring_rows * exp_floats; };
    const auto fill = [&](int64_t first, int64_t count) {
      const Rectangle rows{image, first, count, strip.origin, strip.columns};
      source.fill(rows, records(first), rows);
      for (int64_t y = first; y < first + count; ++y) {
        const int64_t first_pixel = (image * s.height + y) * s.width + strip.origin;
        Exponentials(layout, records(y), exps(y),
                     source.mask == nullptr ? nullptr : source.mask + first_pixel, strip.columns);
      }
    };
    const auto visit = [&](int64_t i) {
      const int64_t top = i * s.stride_h - s.pad_top;
      const TapRange range = valid_taps(top, s.kernel_h, s.dilation_h, s.height);
      for (int64_t t = range.begin; t < range.end; ++t) {
        const int64_t y = top + t * s.dilation_h;
        worker.record_rows[t - range.begin] = records(y);
        worker.exp_rows[t - range.begin] = exps(y);
        worker.grad_rows[t - range.begin] = ring.slot(y);
      }
      const float* dz = gradient.row(image, i, tasks.end_window(band), strip);
      const auto add_windows = [&](int64_t begin, int64_t end, float* z) {
        std::fill_n(worker.row_bias, table_floats, 0.0f);
        std::fill_n(worker.row_weight, table_floats, 0.0f);
        BackwardRow(
            plan,
            TapRows{worker.record_rows, worker.exp_rows, range.begin, range.end - range.begin},
            GradRows{worker.grad_rows, worker.row_bias, worker.row_weight}, begin, end,
            strip.origin, strip.columns, dz + (begin - strip.first_window) * layout.value_floats, z,
            gradient.query_stride, worker.window);
      };
      // What another strip's windows give the tables is that strip's to add.
      if (strip.before() > 0) add_windows(strip.first_window, strip.own_window, nullptr);
      add_windows(strip.own_window, strip.end_window, gradient.z(i));
      gradient.done(image, i, strip);
      for (int64_t c = 0; c < table_floats; ++c) {
        part.bias[c] += worker.row_bias[c];
        part.weight[c] += worker.row_weight[c];
      }
    };
    run_band(tasks, band, ring, fill_rows, part.edges, fill, visit,
             [&](int64_t row, const float* grads) { give(sink, image, strip, row, grads); });
  };

  runtime.for_each(tasks.count, [&](int64_t task, int worker) {
    const Task& sums = parts[task];
    std::fill_n(sums.bias, table_floats, 0.0f);
    std::fill_n(sums.weight, table_floats, 0.0f);
    auto source = ends.source(worker);
    auto gradient = ends.gradient(task, worker);
    auto sink = ends.sink(task, worker, /*is_first=*/true);
    const BackwardPart part = tasks.part(task);
    const int64_t first_row = tasks.begin_row(part.band);
    // Of a dropped image, the first strip's task writes whole rows.
    const int64_t end_row = part.strip == 0 ? tasks.begin_row(part.band + 1) : first_row;
    for (int64_t image = part.image; image < part.end_image; ++image) {
      if (ends.drop(image, first_row, end_row)) continue;
      for (int64_t strip = part.strip; strip < part.end_strip; ++strip) {
        run_rectangle(workers[worker], sums, source, gradient, sink, image, tasks.strip(strip),
                      part.band);
      }
    }
    gradient.finish();
    sink.finish();
  });

  // Rows to which two bands contributed. (Bands mean one image and strip per task.)
  runtime.for_each(tasks.bands == 1 ? 0 : tasks.count, [&](int64_t task, int worker) {
    const BackwardPart part = tasks.part(task);
    if (part.band == 0 || ends.drop(part.image, 0, 0)) return;
    const ColumnStrip strip = tasks.strip(part.strip);
    auto sink = ends.sink(task, worker, /*is_first=*/false);
    add_edges(tasks, task, parts[task - 1].edges, parts[task].edges,
              strip.columns * layout.record(),
              [&](int64_t row, const float* grads) { give(sink, part.image, strip, row, grads); });
    sink.finish();
  });

  const std::vector<int32_t> sources = layout.score_sources();
  for (int64_t t = 0; t < s.taps(); ++t)
    for (int64_t c = 0; c < layout.score_floats; ++c) {
      if (sources[c] < 0) continue;
      double bias_sum = 0;
      double weight_sum = 0;
      for (const Task& part : parts) {
        bias_sum += part.bias[t * layout.score_floats + c];
        weight_sum += part.weight[t * layout.score_floats + c];
      }
      grad_bias[t * s.scores() + sources[c]] = static_cast<float>(bias_sum);
      grad_tap_weights[t * s.scores() + sources[c]] = static_cast<float>(weight_sum);
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_WINDOW_BACKWARD_STREAM_INL_H_
