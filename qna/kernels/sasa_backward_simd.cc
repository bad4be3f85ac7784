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
  static SasaGradientScratch carve(ScratchArena& arena, const SasaPlan& plan, int64_t ring_rows) {
    const WindowShape& s = plan.shape;
    const int64_t row_floats = s.width * plan.layout.value_floats;
    const int64_t window_floats = s.out_width() * plan.layout.value_floats;
    return {SasaRing::carve(arena, plan, ring_rows, s.width),
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
  GradientRing grads;  // each row: [width][value_floats] of keys, then of values
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

  // What the windows of output row i of an image contribute.
  void add_row(int64_t image, int64_t i, const SasaGradientScratch& scratch,
               const SasaPart& part) const {
    const WindowShape& s = plan.shape;
    const int64_t top = i * s.stride_h - s.pad_top;
    const SasaRows rows = scratch.ring.under(plan, image, top, 0, args.forward.mask);
    for (int64_t r = 0; r < rows.count; ++r) {
      scratch.grad_keys[r] = scratch.grads.slot(top + (rows.first + r) * s.dilation_h);
      scratch.grad_values[r] = scratch.grad_keys[r] + s.width * plan.layout.value_floats;
    }
    const int64_t window = (image * s.out_height() + i) * s.out_width();
    q.pack(window, s.out_width(), nullptr, scratch.q);
    grad_out.pack(window, s.out_width(), nullptr, scratch.grad_out);
    const int64_t table_floats = s.taps() * plan.layout.score_floats;
    std::fill_n(scratch.row_bias, table_floats, 0.0f);
    ForEachTile(plan, rows, scratch.cells, 0, s.out_width(), 0, s.width,
                [&](const auto& tile, int64_t j) HWY_ATTR {
                  const int64_t offset = j * plan.layout.value_floats + tile.group.value_offset;
                  tile.Backward(scratch.q + offset, scratch.grad_out + offset,
                                scratch.grad_q + offset, scratch.grad_keys, scratch.grad_values,
                                scratch.row_bias);
                });
    grad_q.unpack(window, s.out_width(), scratch.grad_q);
    for (int64_t c = 0; c < table_floats; ++c) part.bias[c] += scratch.row_bias[c];
  }

  // Stores the finished gradients of an input row.
  void take(int64_t image, int64_t row, const float* grads) const {
    const int64_t width = plan.shape.width;
    const int64_t first = (image * plan.shape.height + row) * width;
    grad_k.unpack(first, width, grads);
    grad_v.unpack(first, width, grads + width * plan.layout.value_floats);
  }

  void run(const BackwardTasks& tasks, int64_t task, const SasaGradientScratch& scratch,
           const SasaPart& part) const {
    const WindowShape& s = plan.shape;
    std::fill_n(part.bias, s.taps() * plan.layout.score_floats, 0.0f);
    const int64_t begin = task / tasks.bands * tasks.images;
    for (int64_t image = begin; image < std::min(s.batch, begin + tasks.images); ++image) {
      const auto fill = [&](int64_t row, int64_t) {
        const int64_t first = (image * s.height + row) * s.width;
        scratch.ring.fill(row, first, s.width, k, v, args.forward.mask);
      };
      run_band(
          tasks, task % tasks.bands, scratch.grads, /*fill_rows=*/1, part.edges, fill,
          [&](int64_t i) { add_row(image, i, scratch, part); },
          [&](int64_t row, const float* grads) { take(image, row, grads); });
    }
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
  const BackwardTasks tasks(s, kMostBackwardTasks);
  const int64_t ring_rows = std::min(s.span_h(), s.height);
  const int64_t edge_floats = tasks.edge_rows * 2 * s.width * layout.value_floats;
  const int64_t table_floats = s.taps() * layout.score_floats;
  SasaPlan plan{s, layout, nullptr};
  float* table = nullptr;
  std::vector<SasaGradientScratch> workers(runtime.workers());
  std::vector<SasaPart> parts(tasks.count);
  const auto carve = [&](ScratchArena arena) {
    table = arena.take<float>(table_floats);
    for (SasaGradientScratch& worker : workers) {
      worker = SasaGradientScratch::carve(arena, plan, ring_rows);
    }
    for (SasaPart& part : parts) {
      part = {{arena.take<float>(edge_floats), arena.take<float>(edge_floats)},
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
  // Rows to which two bands contributed. (Bands mean one image per task.)
  runtime.for_each(tasks.bands == 1 ? 0 : tasks.count, [&](int64_t task, int) {
    if (task % tasks.bands == 0) return;
    add_edges(
        tasks, task, parts[task - 1].edges, parts[task].edges, 2 * s.width * layout.value_floats,
        [&](int64_t row, const float* grads) { backward.take(task / tasks.bands, row, grads); });
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
