#include "qna/kernels/sasa_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/sasa_backward_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/backward_bands.h"
#include "qna/kernels/sasa_ring-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// One worker's memory.
struct SasaGradientScratch {
  static SasaGradientScratch carve(ScratchArena& arena, const SasaPlan& plan,
                                   const BackwardTasks& tasks) {
    const WindowShape& s = plan.shape;
    const int64_t ring_rows = std::min(s.span_h(), s.height);
    const int64_t row_floats = tasks.strip_columns * plan.layout.value_floats;
    const int64_t window_floats = tasks.strip_windows * plan.layout.value_floats;
    return {SasaRing::carve(arena, plan, ring_rows, tasks.strip_columns),
            {arena.take<float>(ring_rows * 2 * row_floats), ring_rows, 2 * row_floats},
            SasaCells::carve(arena, s, true),
            arena.take<float>(window_floats),
            arena.take<float>(window_floats),
            arena.take<float>(window_floats),
            arena.take<float>(s.taps() * plan.layout.score_floats),
            arena.take<float*>(s.kernel_h),
            arena.take<float*>(s.kernel_h)};
  }
  SasaRing ring;
  GradientRing grads;  // each row: [columns][value_floats] of keys, then of values
  SasaCells cells;
  float* q;  // of a row of windows, packed
  float* grad_out;
  float* grad_q;
  float* row_bias;  // of one row of windows: sums of sums keep float32 exact enough
  float** grad_keys;
  float** grad_values;
};

// What a task leaves for the end.
struct SasaPart {
  BandEdges edges;
  float* bias;  // [taps][score_floats]
};

// The maps of one call.
template <typename T>
struct SasaBackward {
  SasaBackward(const SasaBackwardArgs<T>& args_in, const SasaPlan& plan_in)
      : args(args_in),
        plan(plan_in),
        q(args.forward.q, plan.layout),
        k(args.forward.k, plan.layout),
        v(args.forward.v, plan.layout),
        grad_out(args.grad_out, plan.layout),
        grad_q(args.grad_q, plan.layout),
        grad_k(args.grad_k, plan.layout),
        grad_v(args.grad_v, plan.layout) {}

  // What a strip's windows of output row i of an image contribute.
  void add_row(int64_t image, int64_t i, const ColumnStrip& strip,
               const SasaGradientScratch& scratch, const SasaPart& part) const {
    const WindowShape& s = plan.shape;
    const int64_t top = i * s.stride_h - s.pad_top;
    const SasaRows rows = scratch.ring.under(plan, image, top, strip.origin, args.forward.mask);
    for (int64_t r = 0; r < rows.count; ++r) {
      scratch.grad_keys[r] = scratch.grads.slot(top + (rows.first + r) * s.dilation_h);
      scratch.grad_values[r] = scratch.grad_keys[r] + scratch.ring.row_floats;
    }
    const int64_t window = (image * s.out_height() + i) * s.out_width();
    q.pack(window + strip.first_window, strip.windows(), nullptr, scratch.q);
    grad_out.pack(window + strip.first_window, strip.windows(), nullptr, scratch.grad_out);
    const int64_t table_floats = s.taps() * plan.layout.score_floats;
    const auto add_windows = [&](int64_t begin, int64_t end) HWY_ATTR {
      std::fill_n(scratch.row_bias, table_floats, 0.0f);
      ForEachTile(plan, rows, scratch.cells, begin, end, strip.origin, strip.columns,
                  [&](const auto& tile, int64_t j) HWY_ATTR {
                    const int64_t offset = (j - strip.first_window) * plan.layout.value_floats +
                                           tile.group.value_offset;
                    tile.Backward(scratch.q + offset, scratch.grad_out + offset,
                                  scratch.grad_q + offset, scratch.grad_keys, scratch.grad_values,
                                  scratch.row_bias);
                  });
    };
    // What another strip's windows give their queries and the bias is that strip's to add.
    if (strip.before() > 0) add_windows(strip.first_window, strip.own_window);
    add_windows(strip.own_window, strip.end_window);
    grad_q.unpack(window + strip.own_window, strip.own_windows(),
                  scratch.grad_q + strip.before() * plan.layout.value_floats);
    for (int64_t c = 0; c < table_floats; ++c) part.bias[c] += scratch.row_bias[c];
  }

  // Stores the finished gradients of a strip's own columns in an input row.
  void take(int64_t image, const ColumnStrip& strip, int64_t row, const float* grads) const {
    const int64_t first = (image * plan.shape.height + row) * plan.shape.width + strip.own_column;
    const float* keys = grads + strip.own_offset() * plan.layout.value_floats;
    grad_k.unpack(first, strip.own_columns, keys);
    grad_v.unpack(first, strip.own_columns, keys + strip.columns * plan.layout.value_floats);
  }

  void run(const BackwardTasks& tasks, int64_t task, SasaGradientScratch scratch,
           const SasaPart& part) const {
    std::fill_n(part.bias, plan.shape.taps() * plan.layout.score_floats, 0.0f);
    const BackwardPart of = tasks.part(task);
    for (int64_t image = of.image; image < of.end_image; ++image)
      for (int64_t i = of.strip; i < of.end_strip; ++i) {
        const ColumnStrip strip = tasks.strip(i);
        scratch.ring.row_floats = strip.columns * plan.layout.value_floats;
        scratch.grads.row_floats = 2 * scratch.ring.row_floats;
        run_rectangle(tasks, image, strip, of.band, scratch, part);
      }
  }
  void run_rectangle(const BackwardTasks& tasks, int64_t image, const ColumnStrip& strip,
                     int64_t band, const SasaGradientScratch& scratch, const SasaPart& part) const {
    const auto fill = [&](int64_t row, int64_t) {
      const int64_t first = (image * plan.shape.height + row) * plan.shape.width + strip.origin;
      scratch.ring.fill(row, first, strip.columns, k, v, args.forward.mask);
    };
    run_band(
        tasks, band, scratch.grads, /*fill_rows=*/1, part.edges, fill,
        [&](int64_t i) { add_row(image, i, strip, scratch, part); },
        [&](int64_t row, const float* grads) { take(image, strip, row, grads); });
  }

  // The tables of all tasks, added in a fixed order.
  void sum_bias(const std::vector<SasaPart>& parts) const {
    const PackedLayout& layout = plan.layout;
    const std::vector<int32_t> sources = layout.first_score_sources();
    for (int64_t t = 0; t < plan.shape.taps(); ++t)
      for (int64_t c = 0; c < layout.score_floats; ++c) {
        if (sources[c] < 0) continue;
        double sum = 0;
        for (const SasaPart& part : parts) sum += part.bias[t * layout.score_floats + c];
        args.grad_bias[t * plan.shape.heads + sources[c]] = static_cast<float>(sum);
      }
  }

  const SasaBackwardArgs<T>& args;
  const SasaPlan& plan;
  const PackedMap<const T> q, k, v, grad_out;
  const PackedMap<T> grad_q, grad_k, grad_v;
};

template <typename T>
void Backward(const SasaBackwardArgs<T>& args, Runtime& runtime) {
  const WindowShape& s = args.forward.shape;
  const PackedLayout layout(s, Lanes(), ScorePlaces::kRepeated);
  const BackwardTasks tasks(s, 4 * layout.value_floats, 2 * layout.value_floats,
                            kMostBackwardTasks);
  const int64_t edge_floats = tasks.strip_columns * 2 * layout.value_floats;  // a row
  const int64_t table_floats = s.taps() * layout.score_floats;
  SasaPlan plan{s, layout, nullptr};
  float* table = nullptr;
  std::vector<SasaGradientScratch> workers(runtime.workers());
  std::vector<SasaPart> parts(tasks.count);
  const auto carve = [&](ScratchArena arena) {
    table = arena.take<float>(table_floats);
    for (SasaGradientScratch& worker : workers) {
      worker = SasaGradientScratch::carve(arena, plan, tasks);
    }
    for (int64_t task = 0; task < tasks.count; ++task) {
      parts[task] = {{arena.take<float>(tasks.head_rows(task) * edge_floats),
                      arena.take<float>(tasks.tail_rows(task) * edge_floats)},
                     arena.take<float>(table_floats)};
    }
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  PackBias(args.forward.bias, s, layout, table);
  plan.bias = table;
  const SasaBackward<T> backward(args, plan);
  runtime.for_each(tasks.count, [&](int64_t task, int worker) {
    backward.run(tasks, task, workers[worker], parts[task]);
  });
  // Rows to which two bands contributed. (Bands mean one image and strip per task.)
  runtime.for_each(tasks.bands == 1 ? 0 : tasks.count, [&](int64_t task, int) {
    const BackwardPart part = tasks.part(task);
    if (part.band == 0) return;
    const ColumnStrip strip = tasks.strip(part.strip);
    add_edges(tasks, task, parts[task - 1].edges, parts[task].edges,
              2 * strip.columns * layout.value_floats, [&](int64_t row, const float* grads) {
                backward.take(part.image, strip, row, grads);
              });
  });
  backward.sum_bias(parts);
}

constexpr SasaBackwardKernels kSasaBackwardKernels = {&Backward<float>, &Backward<BFloat16>,
                                                      &Backward<Float16>};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(SasaBackwardKernels, sasa_backward_kernels, kSasaBackwardKernels)
}  // namespace qna::kernels
#endif
