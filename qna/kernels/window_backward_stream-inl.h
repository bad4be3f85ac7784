// Streams an image through the backward pass, band by band (see backward_bands.h). Every band has
// its own sums for bias and tap weights, which are added at the end, in a fixed order.

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
//   Ends::carve(arena): takes its own scratch; pack(runtime): fills it, once.
//   Ends::source(worker).fill(rectangle, records), .mask: packed rows of values and scores.
//   Ends::gradient(task, worker): row(image, row, end) gives the packed dz of an output row, a
//   plane
//     per query `query_stride` apart (rows come in order, up to `end`); z(row) where the row's z is
//     wanted, or null; done(image, row) is told when the row is finished, finish() ends the task.
//   Ends::drop(image, first, end): false, or the image takes no part, and rows [first, end) of its
//     gradient are written.
//   Ends::sink(task, worker, is_first): take(image, row, records) gets finished rows of gradients
//   in
//     order; finish() ends the task. is_first: false for the rows between two bands, at the end.
template <typename Ends>
void StreamBackward(const WindowShape& s, const PackedLayout& layout, const float* bias,
                    const float* tap_weights, const BackwardTasks& tasks, Ends& ends,
                    float* grad_bias, float* grad_tap_weights, Runtime& runtime) {
  // Rows are filled several at a time on narrow maps (see kStepWindows).
  const int64_t fill_rows = std::min((kStepWindows - 1) / s.width + 1, s.height);
  const int64_t ring_rows = std::min(s.span_h() + fill_rows - 1, s.height);
  const int64_t row_floats = s.width * layout.record();
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
      worker.records = arena.take<float>(ring_rows * row_floats);
      worker.exps = arena.take<float>(ring_rows * s.width * layout.score_floats);
      worker.grads = arena.take<float>(ring_rows * row_floats);
      worker.row_bias = arena.take<float>(table_floats);
      worker.row_weight = arena.take<float>(table_floats);
      worker.window = arena.take<float>(BackwardScratch::floats(s, layout.most_score_vectors));
      worker.record_rows = arena.take<const float*>(s.kernel_h);
      worker.exp_rows = arena.take<const float*>(s.kernel_h);
      worker.grad_rows = arena.take<float*>(s.kernel_h);
    }
    for (Task& part : parts) {
      part.edges.head = arena.take<float>(tasks.edge_rows * row_floats);
      part.edges.tail = arena.take<float>(tasks.edge_rows * row_floats);
      part.bias = arena.take<float>(table_floats);
      part.weight = arena.take<float>(table_floats);
    }
    ends.carve(arena);
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  tables = MakeTables(s, layout, bias, tap_weights, table_memory);
  ends.pack(runtime);

  const auto run_image = [&](const Worker& worker, const Task& part, auto& source, auto& gradient,
                             auto& sink, int64_t image, int64_t band) {
    const GradientRing ring{worker.grads, ring_rows, row_floats};
    const auto records = [&](int64_t y) { return worker.records + y % ring_rows * row_floats; };
    const auto exps = [&](int64_t y) {
      return worker.exps + y % ring_rows * s.width * layout.score_floats;
    };
    const auto fill = [&](int64_t first, int64_t count) {
      const Rectangle rows{image, first, count, 0, s.width};
      source.fill(rows, records(first), rows);
      const int64_t first_pixel = (image * s.height + first) * s.width;
      Exponentials(layout, records(first), exps(first),
                   source.mask == nullptr ? nullptr : source.mask + first_pixel, count * s.width);
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
      std::fill_n(worker.row_bias, table_floats, 0.0f);
      std::fill_n(worker.row_weight, table_floats, 0.0f);
      BackwardRow(
          plan, TapRows{worker.record_rows, worker.exp_rows, range.begin, range.end - range.begin},
          GradRows{worker.grad_rows, worker.row_bias, worker.row_weight},
          gradient.row(image, i, tasks.end_window(band)), gradient.z(i), gradient.query_stride,
          worker.window);
      gradient.done(image, i);
      for (int64_t c = 0; c < table_floats; ++c) {
        part.bias[c] += worker.row_bias[c];
        part.weight[c] += worker.row_weight[c];
      }
    };
    run_band(tasks, band, ring, fill_rows, part.edges, fill, visit,
             [&](int64_t row, const float* grads) { sink.take(image, row, grads); });
  };

  runtime.for_each(tasks.count, [&](int64_t task, int worker) {
    const Task& part = parts[task];
    std::fill_n(part.bias, table_floats, 0.0f);
    std::fill_n(part.weight, table_floats, 0.0f);
    auto source = ends.source(worker);
    auto gradient = ends.gradient(task, worker);
    auto sink = ends.sink(task, worker, /*is_first=*/true);
    const int64_t first = task / tasks.bands * tasks.images;
    const int64_t band = task % tasks.bands;
    for (int64_t image = first; image < std::min(s.batch, first + tasks.images); ++image) {
      if (ends.drop(image, tasks.begin_row(band), tasks.begin_row(band + 1))) continue;
      run_image(workers[worker], part, source, gradient, sink, image, band);
    }
    gradient.finish();
    sink.finish();
  });

  // Rows to which two bands contributed. (Bands mean one image per task.)
  runtime.for_each(tasks.bands == 1 ? 0 : tasks.count, [&](int64_t task, int worker) {
    if (task % tasks.bands == 0 || ends.drop(task / tasks.bands, 0, 0)) return;
    auto sink = ends.sink(task, worker, /*is_first=*/false);
    add_edges(tasks, task, parts[task - 1].edges, parts[task].edges, row_floats,
              [&](int64_t row, const float* grads) { sink.take(task / tasks.bands, row, grads); });
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
