// Streams an image through window attention: a task keeps a ring of the input rows under the
// current windows, asks a Source for new rows and hands finished output rows to a Sink. What it
// holds depends on the window and the layout, not on the image: wide images go in column strips.

#if defined(QNA_KERNELS_WINDOW_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_WINDOW_STREAM_INL_H_
#undef QNA_KERNELS_WINDOW_STREAM_INL_H_
#else
#define QNA_KERNELS_WINDOW_STREAM_INL_H_
#endif

#include "qna/kernels/scratch.h"
#include "qna/kernels/window_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// The ring should stay in a core's second-level cache beside the weights.
inline int64_t RingBytes() { return cache_sizes().second * 3 / 4; }
// Rows are taken several at a time on narrow maps, so that a matrix product has enough rows to use
// each cache line of the weights often.
constexpr int64_t kStepWindows = 64;

// A rectangle of a map: rows [row, row + rows), columns [column, column + columns) of `image`.
struct Rectangle {
  int64_t image, row, rows, column, columns;
};

// How the output is cut into tasks: image x band of rows x strip of columns.
struct StreamTasks {
  // pixel_floats: what the ring holds for every pixel.
  StreamTasks(const WindowShape& s, int64_t pixel_floats, int workers) {
    const int64_t column_bytes =
        std::min(s.span_h(), s.height) * pixel_floats * int64_t{sizeof(float)};
    // Neighbouring strips both need span_w - stride_w columns: keep that a small part.
    const int64_t least = std::max<int64_t>(16, 2 * s.span_w() / s.stride_w);
    const int64_t fit = (RingBytes() / column_bytes - s.span_w()) / s.stride_w + 1;
    strips = (s.out_width() - 1) / std::max(least, fit) + 1;
    strip_columns = (s.out_width() - 1) / strips + 1;
    strips = (s.out_width() - 1) / strip_columns + 1;
    // Each band reads span_h - stride_h rows of its neighbour again, so as few bands as give every
    // worker the same number of tasks, or many to each.
    const int64_t others = std::max<int64_t>(1, s.batch * strips);
    int64_t wanted = 1;
    while (others * wanted % workers != 0 && others * wanted < 4 * workers) ++wanted;
    const int64_t most =
        std::max<int64_t>(1, s.out_height() / std::max<int64_t>(2, s.span_h() / 2));
    bands = std::min(wanted, most);
    band_rows = (s.out_height() - 1) / bands + 1;
    bands = (s.out_height() - 1) / band_rows + 1;
    count = s.batch * bands * strips;

    const int64_t steps = (band_rows - 1) / ((kStepWindows - 1) / strip_columns + 1) + 1;
    step_rows = (band_rows - 1) / steps + 1;
    ring_rows = std::min(s.span_h() + (step_rows - 1) * s.stride_h, s.height);
    ring_columns = std::min(s.width, s.span_w() + (strip_columns - 1) * s.stride_w);
    step_windows = step_rows * strip_columns;
  }

  int64_t image(int64_t task) const { return task / strips / bands; }
  // The outputs of a task.
  Rectangle outputs(const WindowShape& s, int64_t task) const {
    const int64_t row = task / strips % bands * band_rows;
    const int64_t column = task % strips * strip_columns;
    return {image(task), row, std::min(band_rows, s.out_height() - row), column,
            std::min(strip_columns, s.out_width() - column)};
  }

  int64_t strips, strip_columns;
  int64_t bands, band_rows;
  int64_t count;
  int64_t step_rows;     // output rows per step
  int64_t step_windows;  // outputs per step at most
  int64_t ring_rows, ring_columns;
};

// What one worker needs.
struct StreamScratch {
  static StreamScratch carve(ScratchArena& arena, const WindowPlan& plan,
                             const StreamTasks& tasks) {
    const int64_t pixels = tasks.ring_rows * tasks.ring_columns;
    StreamScratch s;
    s.records = arena.take<float>(pixels * plan.layout.record());
    s.exps = arena.take<float>(pixels * plan.layout.score_floats);
    s.z = arena.take<float>(plan.shape.outputs() * tasks.step_windows * plan.layout.value_floats);
    s.row = arena.take<float>(ForwardScratch::floats(plan.shape));
    s.record_rows = arena.take<const float*>(plan.shape.kernel_h);
    s.exp_rows = arena.take<const float*>(plan.shape.kernel_h);
    return s;
  }
  float* records;
  float* exps;
  float* z;
  float* row;
  const float** record_rows;
  const float** exp_rows;
};

// Source::fill(rectangle, records, owned): the rectangle's packed records, row after row.
// Neighbouring tasks both ask for the pixels between them; exactly one owns each (`owned` may be
// larger than the image part the task asks for). Sink::take(rectangle of outputs, z,
// z_query_stride): their packed outputs, row after row.
template <typename Source, typename Sink>
void StreamTask(const WindowPlan& plan, const StreamTasks& tasks, int64_t task,
                const StreamScratch& scratch, Source& source, Sink& sink) {
  const WindowShape& s = plan.shape;
  const PackedLayout& layout = plan.layout;
  const int64_t strip = task % tasks.strips;
  const int64_t band = task / tasks.strips % tasks.bands;
  const Rectangle outputs = tasks.outputs(s, task);
  const int64_t image = outputs.image;
  const int64_t j_begin = outputs.column, j_end = j_begin + outputs.columns;
  const int64_t i_begin = outputs.row, i_end = i_begin + outputs.rows;
  // The strip's input columns; none where all its windows lie in the padding.
  const int64_t first = j_begin * s.stride_w - s.pad_left;
  const int64_t origin = std::clamp<int64_t>(first, 0, s.width);
  const int64_t past = (j_end - 1) * s.stride_w - s.pad_left + s.span_w();
  const int64_t width = std::max<int64_t>(0, std::min(s.width, past) - origin);
  const int64_t z_query_stride = tasks.step_windows * layout.value_floats;

  const auto row_of = [&](int64_t b) {
    if (b == 0) return int64_t{0};
    if (b == tasks.bands) return s.height;
    return std::clamp<int64_t>(b * tasks.band_rows * s.stride_h - s.pad_top, 0, s.height);
  };
  const auto column_of = [&](int64_t c) {
    if (c == 0) return int64_t{0};
    if (c == tasks.strips) return s.width;
    return std::clamp<int64_t>(c * tasks.strip_columns * s.stride_w - s.pad_left, 0, s.width);
  };
  const Rectangle owned{image, row_of(band), row_of(band + 1) - row_of(band), column_of(strip),
                        column_of(strip + 1) - column_of(strip)};

  int64_t filled = 0;  // input rows before this one are in the ring, or no longer needed
  for (int64_t i0 = i_begin; i0 < i_end; i0 += tasks.step_rows) {
    const int64_t i1 = std::min(i_end, i0 + tasks.step_rows);
    const int64_t need = std::max<int64_t>(0, i0 * s.stride_h - s.pad_top);
    const int64_t need_end = std::min(s.height, (i1 - 1) * s.stride_h - s.pad_top + s.span_h());
    for (int64_t y = std::max(filled, need); y < need_end;) {
      const int64_t slot = y % tasks.ring_rows;
      const int64_t count = std::min(need_end - y, tasks.ring_rows - slot);
      float* records = scratch.records + slot * width * layout.record();
      source.fill(Rectangle{image, y, count, origin, width}, records, owned);
      for (int64_t r = 0; r < count; ++r) {
        const uint8_t* mask = source.mask == nullptr
                                  ? nullptr
                                  : source.mask + (image * s.height + y + r) * s.width + origin;
        Exponentials(layout, records + r * width * layout.record(),
                     scratch.exps + (slot + r) * width * layout.score_floats, mask, width);
      }
      y += count;
      filled = y;
    }
    for (int64_t i = i0; i < i1; ++i) {
      const int64_t top = i * s.stride_h - s.pad_top;
      const TapRange range = valid_taps(top, s.kernel_h, s.dilation_h, s.height);
      for (int64_t t = range.begin; t < range.end; ++t) {
        const int64_t slot = (top + t * s.dilation_h) % tasks.ring_rows;
        scratch.record_rows[t - range.begin] = scratch.records + slot * width * layout.record();
        scratch.exp_rows[t - range.begin] = scratch.exps + slot * width * layout.score_floats;
      }
      const TapRows rows{scratch.record_rows, scratch.exp_rows, range.begin,
                         range.end - range.begin};
      ForwardRow(plan, rows, j_begin, j_end, origin, width,
                 scratch.z + (i - i0) * (j_end - j_begin) * layout.value_floats, z_query_stride,
                 scratch.row);
    }
    sink.take(Rectangle{image, i0, i1 - i0, j_begin, j_end - j_begin}, scratch.z, z_query_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_WINDOW_STREAM_INL_H_
