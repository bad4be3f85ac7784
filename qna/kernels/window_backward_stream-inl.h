// Streams an image through the backward pass, band by band.
//
// The answer must not depend on the number of workers, so the cut into bands depends on the shape
// alone, and what two bands both contribute to is added afterwards in a fixed order: the rows that
// a band's last windows share with the next band's first ones, the bias and the tap weights.

#if defined(QNA_KERNELS_WINDOW_BACKWARD_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_WINDOW_BACKWARD_STREAM_INL_H_
#undef QNA_KERNELS_WINDOW_BACKWARD_STREAM_INL_H_
#else
#define QNA_KERNELS_WINDOW_BACKWARD_STREAM_INL_H_
#endif

#include "qna/kernels/scratch.h"
#include "qna/kernels/window_backward-inl.h"
#include "qna/kernels/window_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

struct BackwardTasks {
  // Tasks are several images, or bands of one image, so that there are about `most`.
  BackwardTasks(const WindowShape& s, int64_t most) : shape(s) {
    const int64_t batch = std::max<int64_t>(1, s.batch);
    images = (batch - 1) / most + 1;  // per task
    image_groups = (s.batch + images - 1) / images;
    // A band's windows may reach into the next band, but not through it; and the rows it shares
    // with its neighbours should be few among its own.
    const int64_t least = std::max<int64_t>(8, 3 * ((s.span_h() - 1) / s.stride_h + 1));
    const int64_t wanted = images > 1 ? 1 : (most - 1) / batch + 1;
    bands = std::clamp<int64_t>(s.out_height() / least, 1, wanted);
    band_rows = (s.out_height() - 1) / bands + 1;
    bands = (s.out_height() - 1) / band_rows + 1;
    count = image_groups * bands;
    edge_rows = bands == 1 ? 0 : std::max<int64_t>(0, s.span_h() - s.stride_h);
  }

  int64_t clamp_row(int64_t y) const { return std::clamp<int64_t>(y, 0, shape.height); }
  int64_t first_window(int64_t band) const { return band * band_rows; }
  int64_t end_window(int64_t band) const {
    return std::min(shape.out_height(), (band + 1) * band_rows);
  }
  // The input rows a band owns: from its first window's first row to the next band's.
  int64_t begin_row(int64_t band) const {
    if (band == 0) return 0;
    if (band >= bands) return shape.height;
    return clamp_row(first_window(band) * shape.stride_h - shape.pad_top);
  }
  // One past the last input row its windows see.
  int64_t reach(int64_t band) const {
    return clamp_row((end_window(band) - 1) * shape.stride_h - shape.pad_top + shape.span_h());
  }
  // How many rows of `band` the band before it contributes to.
  int64_t shared_rows(int64_t band) const {
    return band == 0 || band >= bands ? 0 : std::max<int64_t>(0, reach(band - 1) - begin_row(band));
  }

  const WindowShape& shape;
  int64_t images, image_groups;
  int64_t bands, band_rows;
  int64_t count;
  int64_t edge_rows;
};

// Most tasks a backward pass is cut into, whatever the machine.
constexpr int64_t kMostBackwardTasks = 32;

// The parts that differ between window attention and the whole layer:
//   Ends::carve(arena): takes its own scratch; pack(runtime): fills it, once.
//   Ends::source(worker).fill(rectangle, records), .mask: packed rows of values and scores.
//   Ends::gradient(task, worker): row(image, row, end) gives the packed dz of an output row, a
//   plane
//     per query `query_stride` apart (rows come in order, up to `end`); z(row) where the row's z is
//     wanted, or null; done(image, row) is told when the row is finished, finish() ends the task.
//   Ends::sink(task, worker): take(image, row, records) gets finished rows of gradients in order;
//     finish() ends the task.
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
    float* head;  // first rows, shared with the band before
    float* tail;  // rows of the next band
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
      worker.window = arena.take<float>(BackwardScratch::floats(s));
      worker.record_rows = arena.take<const float*>(s.kernel_h);
      worker.exp_rows = arena.take<const float*>(s.kernel_h);
      worker.grad_rows = arena.take<float*>(s.kernel_h);
    }
    for (Task& part : parts) {
      part.head = arena.take<float>(tasks.edge_rows * row_floats);
      part.tail = arena.take<float>(tasks.edge_rows * row_floats);
      part.bias = arena.take<float>(table_floats);
      part.weight = arena.take<float>(table_floats);
    }
    ends.carve(arena);
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  tables = MakeTables(s, layout, bias, tap_weights, table_memory);
  ends.pack(runtime);

  const auto run_band = [&](const Worker& worker, const Task& part, auto& source, auto& gradient,
                            auto& sink, int64_t image, int64_t band) {
    const int64_t begin = tasks.begin_row(band);
    const int64_t end = tasks.begin_row(band + 1);
    const int64_t last = std::max(end, tasks.reach(band));  // one past the last row that is filled
    const int64_t shared = tasks.shared_rows(band);
    int64_t filled = begin;   // rows before this one entered the ring
    int64_t flushed = begin;  // rows before this one left it
    const auto slot = [&](float* ring, int64_t y) { return ring + y % ring_rows * row_floats; };
    const auto exp_slot = [&](int64_t y) {
      return worker.exps + y % ring_rows * s.width * layout.score_floats;
    };
    const auto flush_until = [&](int64_t limit) {
      for (; flushed < limit; ++flushed) {
        const float* row = slot(worker.grads, flushed);
        if (flushed >= end) {
          std::memcpy(part.tail + (flushed - end) * row_floats, row, row_floats * sizeof(float));
        } else if (flushed < begin + shared) {
          std::memcpy(part.head + (flushed - begin) * row_floats, row, row_floats * sizeof(float));
        } else {
          sink.take(image, flushed, row);
        }
      }
    };
    const auto fill_until = [&](int64_t limit) {
      while (filled < limit) {
        const int64_t count = std::min({fill_rows, last - filled, ring_rows - filled % ring_rows});
        flush_until(filled + count - ring_rows);  // the rows that held these slots
        float* records = slot(worker.records, filled);
        const Rectangle rows{image, filled, count, 0, s.width};
        source.fill(rows, records, rows);
        const int64_t first_pixel = (image * s.height + filled) * s.width;
        Exponentials(layout, records, exp_slot(filled),
                     source.mask == nullptr ? nullptr : source.mask + first_pixel, count * s.width);
        std::fill_n(slot(worker.grads, filled), count * row_floats, 0.0f);
        filled += count;
      }
    };
    const int64_t windows_end = tasks.end_window(band);
    for (int64_t i = tasks.first_window(band); i < windows_end; ++i) {
      const int64_t top = i * s.stride_h - s.pad_top;
      fill_until(tasks.clamp_row(top + s.span_h()));
      const TapRange range = valid_taps(top, s.kernel_h, s.dilation_h, s.height);
      for (int64_t t = range.begin; t < range.end; ++t) {
        const int64_t y = top + t * s.dilation_h;
        worker.record_rows[t - range.begin] = slot(worker.records, y);
        worker.exp_rows[t - range.begin] = exp_slot(y);
        worker.grad_rows[t - range.begin] = slot(worker.grads, y);
      }
      std::fill_n(worker.row_bias, table_floats, 0.0f);
      std::fill_n(worker.row_weight, table_floats, 0.0f);
      BackwardRow(
          plan, TapRows{worker.record_rows, worker.exp_rows, range.begin, range.end - range.begin},
          GradRows{worker.grad_rows, worker.row_bias, worker.row_weight},
          gradient.row(image, i, windows_end), gradient.z(i), gradient.query_stride, worker.window);
      gradient.done(image, i);
      for (int64_t c = 0; c < table_floats; ++c) {
        part.bias[c] += worker.row_bias[c];
        part.weight[c] += worker.row_weight[c];
      }
    }
    fill_until(end);  // rows below the last window: no gradient
    flush_until(last);
  };

  runtime.for_each(tasks.count, [&](int64_t task, int worker) {
    const Task& part = parts[task];
    std::fill_n(part.bias, table_floats, 0.0f);
    std::fill_n(part.weight, table_floats, 0.0f);
    auto source = ends.source(worker);
    auto gradient = ends.gradient(task, worker);
    auto sink = ends.sink(task, worker);
    const int64_t first = task / tasks.bands * tasks.images;
    for (int64_t image = first; image < std::min(s.batch, first + tasks.images); ++image) {
      run_band(workers[worker], part, source, gradient, sink, image, task % tasks.bands);
    }
    gradient.finish();
    sink.finish();
  });

  // Rows to which two bands contributed. (Bands mean one image per task.)
  runtime.for_each(tasks.bands == 1 ? 0 : tasks.count, [&](int64_t task, int worker) {
    const int64_t band = task % tasks.bands;
    auto sink = ends.sink(task, worker);
    for (int64_t r = 0; r < tasks.shared_rows(band); ++r) {
      float* head = parts[task].head + r * row_floats;
      const float* tail = parts[task - 1].tail + r * row_floats;
      for (int64_t c = 0; c < row_floats; ++c) head[c] = tail[c] + head[c];
      sink.take(task / tasks.bands, tasks.begin_row(band) + r, head);
    }
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
