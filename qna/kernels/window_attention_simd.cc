#include "qna/kernels/window_attention_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/window_attention_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/rows-inl.h"
#include "qna/kernels/window_backward_stream-inl.h"
#include "qna/kernels/window_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// Packs rows of given scores and values.
template <typename T>
struct ReadMaps {
  void fill(const Rectangle& r, float* records) {
    for (int64_t y = 0; y < r.rows; ++y)
      for (int64_t x = 0; x < r.columns; ++x) {
        const int64_t pixel = (r.image * height + r.row + y) * width + r.column + x;
        float* record = records + (y * r.columns + x) * layout.record();
        value_map.pack(record, values + pixel * value_stride);
        score_map.pack(record + layout.value_floats, scores + pixel * score_stride);
      }
  }
  const PackedLayout& layout;
  const ChannelMap& value_map;
  const ChannelMap& score_map;
  const T* values;
  int64_t value_stride;
  const T* scores;
  int64_t score_stride;
  const uint8_t* mask;
  int64_t height, width;
};

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
void Forward(const ForwardArgs<T>& args, Runtime& runtime) {
  const WindowShape& s = args.shape;
  const PackedLayout layout(s, Lanes());
  const StreamTasks tasks(s, layout, runtime.workers());
  const ChannelMap value_map(layout.value_sources(args.value_layout));
  const ChannelMap score_map(layout.score_sources());
  const ChannelMap out_map(layout.value_sources(args.out_layout));
  WindowTables tables;
  const WindowPlan plan(s, tables, layout);
  float* table_memory = nullptr;
  std::vector<StreamScratch> workers(runtime.workers());
  const auto carve = [&](ScratchArena arena) {
    table_memory = arena.take<float>(TableFloats(s, layout));
    for (StreamScratch& worker : workers) worker = StreamScratch::carve(arena, plan, tasks);
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  tables = MakeTables(s, layout, args.bias, args.tap_weights, table_memory);
  runtime.for_each(tasks.count, [&](int64_t task, int worker) {
    ReadMaps<T> source{layout,      value_map,         score_map, args.values,
                       args.value_layout.pixel_stride, args.scores, args.score_stride,
                       args.mask,   s.height,          s.width};
    WriteOutput<T> sink{s, out_map, args.out, args.out_layout.pixel_stride, layout.value_floats};
    StreamTask(plan, tasks, task, workers[worker], source, sink);
  });
}

template <typename T>
void Backward(const BackwardArgs<T>& args, Runtime& runtime) {
  const WindowShape& s = args.shape;
  const PackedLayout layout(s, Lanes());
  const ChannelMap value_map(layout.value_sources(args.value_layout));
  const ChannelMap score_map(layout.score_sources());
  const ChannelMap out_map(layout.value_sources(args.out_layout));
  const ChannelMap grad_value_map(layout.value_sources(args.grad_value_layout));
  ReadMaps<T> source{layout,      value_map,         score_map, args.values,
                     args.value_layout.pixel_stride, args.scores, args.score_stride,
                     args.mask,   s.height,          s.width};

  // Packs a row of dz: a plane for every output of a window.
  struct ReadGradient {
    void fill(int64_t image, int64_t row, float* dz) const {
      const WindowShape& shape = args.shape;
      for (int64_t j = 0; j < shape.out_width(); ++j)
        for (int64_t l = 0; l < shape.outputs(); ++l) {
          const int64_t window = (image * shape.out_height() + row) * shape.out_width() + j;
          const int64_t pixel = window * shape.outputs() + l;
          map.pack(dz + (l * shape.out_width() + j) * value_floats,
                   args.grad_out + pixel * args.out_layout.pixel_stride);
        }
    }
    const BackwardArgs<T>& args;
    const ChannelMap& map;
    int64_t value_floats;
  } gradient{args, out_map, layout.value_floats};

  // Unpacks a finished row of gradient records.
  struct WriteGradient {
    void take(int64_t image, int64_t row, const float* records) const {
      const int64_t first = (image * args.shape.height + row) * args.shape.width;
      for (int64_t x = 0; x < args.shape.width; ++x) {
        const float* record = records + x * layout.record();
        value_map.unpack(args.grad_values + (first + x) * args.grad_value_layout.pixel_stride,
                         record);
        score_map.unpack(args.grad_scores + (first + x) * args.grad_score_stride,
                         record + layout.value_floats);
      }
    }
    const BackwardArgs<T>& args;
    const PackedLayout& layout;
    const ChannelMap& value_map;
    const ChannelMap& score_map;
  } sink{args, layout, grad_value_map, score_map};

  StreamBackward(s, layout, args.bias, args.tap_weights, source, gradient, sink, args.grad_bias,
                 args.grad_tap_weights, runtime);
}

constexpr WindowKernels kWindowKernels = {{&Forward<float>, &Backward<float>},
                                          {&Forward<BFloat16>, &Backward<BFloat16>},
                                          {&Forward<Float16>, &Backward<Float16>},
                                          static_cast<int>(hn::MaxLanes(FloatTag()))};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(WindowKernels, window_kernels, kWindowKernels)
}  // namespace qna::kernels
#endif
