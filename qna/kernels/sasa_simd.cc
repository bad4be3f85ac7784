#include "qna/kernels/sasa_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/sasa_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/sasa_ring-inl.h"
#include "qna/kernels/window_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// One worker's memory.
struct SasaScratch {
  static SasaScratch carve(ScratchArena& arena, const SasaPlan& plan, const StreamTasks& tasks) {
    return {SasaRing::carve(arena, plan, tasks.ring_rows, tasks.ring_columns),
            SasaCells::carve(arena, plan.shape, false),
            arena.take<float>(tasks.strip_columns * plan.layout.value_floats),
            arena.take<float>(tasks.strip_columns * plan.layout.value_floats)};
  }
  SasaRing ring;
  SasaCells cells;
  float* q;    // of a row of windows, packed
  float* out;  // the same
};

// The maps of one call.
template <typename T>
struct SasaForward {
  SasaForward(const SasaArgs<T>& args_in, const SasaPlan& plan_in)
      : args(args_in),
        plan(plan_in),
        q(args.q, plan.layout),
        k(args.k, plan.layout),
        v(args.v, plan.layout),
        out(args.out, plan.layout) {}

  // A strip of columns of a band of output rows.
  void run(const StreamTasks& tasks, int64_t task, const SasaScratch& scratch) const {
    const WindowShape& s = plan.shape;
    const int64_t strip = task % tasks.strips;
    const int64_t band = task / tasks.strips % tasks.bands;
    const int64_t image = task / tasks.strips / tasks.bands;
    const int64_t j_begin = strip * tasks.strip_columns;
    const int64_t j_end = std::min(s.out_width(), j_begin + tasks.strip_columns);
    const int64_t i_begin = band * tasks.band_rows;
    const int64_t i_end = std::min(s.out_height(), i_begin + tasks.band_rows);
    // The strip's input columns; none where all its windows lie in the padding.
    const int64_t origin = std::clamp<int64_t>(j_begin * s.stride_w - s.pad_left, 0, s.width);
    const int64_t past = (j_end - 1) * s.stride_w - s.pad_left + s.span_w();
    const int64_t width = std::max<int64_t>(0, std::min(s.width, past) - origin);

    int64_t filled = 0;  // input rows before this one are in the ring, or no longer needed
    for (int64_t i = i_begin; i < i_end; ++i) {
      const int64_t top = i * s.stride_h - s.pad_top;
      filled = std::max<int64_t>(filled, top);
      for (; filled < std::min(s.height, top + s.span_h()); ++filled) {
        const int64_t first = (image * s.height + filled) * s.width + origin;
        scratch.ring.fill(filled, first, width, k, v, args.mask);
      }
      const SasaRows rows = scratch.ring.under(plan, image, top, origin, args.mask);
      const int64_t window = (image * s.out_height() + i) * s.out_width() + j_begin;
      q.pack(window, j_end - j_begin, nullptr, scratch.q);
      ForEachTile(plan, rows, scratch.cells, j_begin, j_end, origin, width,
                  [&](const auto& tile, int64_t j) HWY_ATTR {
                    const int64_t offset =
                        (j - j_begin) * plan.layout.value_floats + tile.group.value_offset;
                    tile.Forward(scratch.q + offset, scratch.out + offset);
                  });
      out.unpack(window, j_end - j_begin, scratch.out);
    }
  }

  const SasaArgs<T>& args;
  const SasaPlan& plan;
  const PackedMap<const T> q, k, v;
  const PackedMap<T> out;
};

template <typename T>
void Forward(const SasaArgs<T>& args, Runtime& runtime) {
  const PackedLayout layout(args.shape, Lanes(), ScorePlaces::kRepeated);
  const StreamTasks tasks(args.shape, 2 * layout.value_floats, runtime.workers());
  SasaPlan plan{args.shape, layout, nullptr};
  float* table = nullptr;
  SasaScratch* workers = nullptr;
  const auto carve = [&](ScratchArena arena) {
    table = arena.take<float>(args.shape.taps() * layout.score_floats);
    workers = arena.take_each(runtime.workers(),
                              [&](ScratchArena& a) { return SasaScratch::carve(a, plan, tasks); });
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  PackBias(args.bias, args.shape, layout, table);
  plan.bias = table;
  const SasaForward<T> forward(args, plan);
  runtime.for_each(tasks.count,
                   [&](int64_t task, int worker) { forward.run(tasks, task, workers[worker]); });
}

#if QNA_SERVING_ONLY
constexpr SasaKernels kSasaKernels = {&Forward<float>, nullptr, nullptr};
#else
constexpr SasaKernels kSasaKernels = {&Forward<float>, &Forward<BFloat16>, &Forward<Float16>};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(SasaKernels, sasa_kernels, kSasaKernels)
}  // namespace qna::kernels
#endif
