#include "qna/kernels/window_attention_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/window_attention_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/maps-inl.h"
#include "qna/kernels/window_backward_stream-inl.h"
#include "qna/kernels/window_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// Unpacks rows of outputs.
template <typename T>
struct WriteOutput {
  void take(const Rectangle& r, const float* z, int64_t z_query_stride) {
    for (int64_t i = 0; i < r.rows; ++i)
      for (int64_t j = 0; j < r.columns; ++j)
        for (int64_t l = 0; l < shape.outputs(); ++l) {
          const int64_t window =
              (r.image * shape.out_height() + r.row + i) * shape.out_width() + r.column + j;
          map.unpack(out + (window * shape.outputs() + l) * stride,
                     z + l * z_query_stride + (i * r.columns + j) * value_floats);
        }
  }
  const WindowShape& shape;
  const ChannelMap& map;
  T* out;
  int64_t stride;
  int64_t value_floats;
};

template <typename T>
void Forward(const WindowAttentionArgs<T>& args, Runtime& runtime) {
  const WindowShape& s = args.shape;
  const PackedLayout layout(s, Lanes(), ScorePlaces::kSideBySide);
  const StreamTasks tasks(s, layout.record() + layout.score_floats, runtime.workers());
  const ChannelMap value_map(layout.value_sources(args.value_layout));
  const ChannelMap score_map(layout.score_sources());
  const ChannelMap out_map(layout.value_sources(args.out_layout));
  WindowTables tables;
  const WindowPlan plan(s, tables, layout);
  float* table_memory = nullptr;
  StreamScratch* workers = nullptr;
  const auto carve = [&](ScratchArena arena) {
    table_memory = arena.take<float>(TableFloats(s, layout));
    workers = arena.take_each(
        runtime.workers(), [&](ScratchArena& a) { return StreamScratch::carve(a, plan, tasks); });
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  tables = MakeTables(s, layout, args.bias, args.tap_weights, table_memory);
  runtime.for_each(tasks.count, [&](int64_t task, int worker) {
    ReadMaps<T> source{
        layout,      value_map,         score_map, args.values, args.value_layout.pixel_stride,
        args.scores, args.score_stride, args.mask, s.height,    s.width};
    WriteOutput<T> sink{s, out_map, args.out, args.out_layout.pixel_stride, layout.value_floats};
    StreamTask(plan, tasks, task, workers[worker], source, sink);
  });
}

// The ends of the backward pass: packed maps in, unpacked gradients out.
template <typename T>
struct WindowEnds {
  // One row of dz at a time.
  struct Gradient {
    const float* row(int64_t image, int64_t i, int64_t, const ColumnStrip& strip) {
      const WindowShape& s = args.shape;
      const int64_t first = (image * s.out_height() + i) * s.out_width() + strip.first_window;
      for (int64_t j = 0; j < strip.windows(); ++j)
        for (int64_t l = 0; l < s.outputs(); ++l) {
          const int64_t window = first + j;
          map.pack(dz + l * query_stride + j * value_floats,
                   args.grad_out + (window * s.outputs() + l) * args.out_layout.pixel_stride);
        }
      return dz;
    }
    float* z(int64_t) { return nullptr; }
    void done(int64_t, int64_t, const ColumnStrip&) {}
    void finish() {}
    const WindowAttentionBackwardArgs<T>& args;
    const ChannelMap& map;
    int64_t value_floats;
    int64_t query_stride;
    float* dz;
  };

  struct Sink {
    void take(const Rectangle& r, const float* records) {
      const WindowAttentionBackwardArgs<T>& args = ends.args;
      const int64_t first = (r.image * args.shape.height + r.row) * args.shape.width + r.column;
      for (int64_t x = 0; x < r.columns; ++x) {
        const float* record = records + x * ends.layout.record();
        ends.grad_value_map.unpack(
            args.grad_values + (first + x) * args.grad_value_layout.pixel_stride, record);
        ends.score_map.unpack(args.grad_scores + (first + x) * args.grad_score_stride,
                              record + ends.layout.value_floats);
      }
    }
    void finish() {}
    const WindowEnds& ends;
  };

  WindowEnds(const WindowAttentionBackwardArgs<T>& args_in, const PackedLayout& layout_in,
             int workers)
      : args(args_in),
        layout(layout_in),
        value_map(layout.value_sources(args.value_layout)),
        score_map(layout.score_sources()),
        out_map(layout.value_sources(args.out_layout)),
        grad_value_map(layout.value_sources(args.grad_value_layout)),
        tasks(args.shape, 2 * layout.record() + layout.score_floats, layout.record(),
              kMostBackwardTasks),
        query_stride(tasks.strip_windows * layout.value_floats),
        dz(workers) {}

  void carve(ScratchArena& arena) {
    for (float*& buffer : dz) buffer = arena.take<float>(args.shape.outputs() * query_stride);
  }
  void pack(Runtime&) {}
  bool drop(int64_t, int64_t, int64_t) const { return false; }
  ReadMaps<T> source(int) const {
    return {layout,
            value_map,
            score_map,
            args.values,
            args.value_layout.pixel_stride,
            args.scores,
            args.score_stride,
            args.mask,
            args.shape.height,
            args.shape.width};
  }
  Gradient gradient(int64_t, int worker) const {
    return {args, out_map, layout.value_floats, query_stride, dz[worker]};
  }
  Sink sink(int64_t, int, bool) const { return {*this}; }

  const WindowAttentionBackwardArgs<T>& args;
  const PackedLayout& layout;
  const ChannelMap value_map, score_map, out_map, grad_value_map;
  const BackwardTasks tasks;
  int64_t query_stride;
  std::vector<float*> dz;  // per worker
};

template <typename T>
void Backward(const WindowAttentionBackwardArgs<T>& args, Runtime& runtime) {
  const PackedLayout layout(args.shape, Lanes(), ScorePlaces::kSideBySide);
  WindowEnds<T> ends(args, layout, runtime.workers());
  StreamBackward(args.shape, layout, args.bias, args.tap_weights, ends, args.grad_bias,
                 args.grad_tap_weights, runtime);
}

constexpr WindowKernels kWindowKernels = {{&Forward<float>, &Backward<float>},
                                          {&Forward<BFloat16>, &Backward<BFloat16>},
                                          {&Forward<Float16>, &Backward<Float16>}};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(WindowKernels, window_kernels, kWindowKernels)
}  // namespace qna::kernels
#endif
