// How a backward pass is cut into tasks: bands of output rows, strips of columns. And what becomes
// of the gradients to which two of them contribute.
//
// The answer must not depend on the number of workers, so the cut depends on the shape alone, not
// even on this machine's caches.
//   Strips: the windows that reach from one strip into the next are computed by both, and each
//   gives
//     the gradients of its own pixels. So what a worker holds does not grow with the width.
//   Bands: the rows that a band's last windows share with the next band's first ones are added
//     afterwards, in a fixed order. Bands are low, and computing so many windows twice would cost
//     more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "qna/kernels/window_shape.h"

namespace qna::kernels {

// Most tasks a backward pass is cut into, whatever the machine.
constexpr int64_t kMostBackwardTasks = 32;
// A worker's rows should stay near its second-level cache.
constexpr int64_t kBackwardRingBytes = 1 << 20;
// Fewer windows than this in a strip do not pay.
constexpr int64_t kLeastStripWindows = 64;
// The rows between bands, of all tasks together, may take this much.
constexpr int64_t kBandEdgeBytes = 32 << 20;

// A strip of an image's columns.
struct ColumnStrip {
  int64_t windows() const { return end_window - first_window; }
  int64_t own_windows() const { return end_window - own_window; }
  int64_t before() const { return own_window - first_window; }  // windows of the strip before
  int64_t own_offset() const { return own_column - origin; }

  int64_t first_window, own_window, end_window;  // computes [first, end), its own are [own, end)
  int64_t origin, columns;                       // the input columns it holds
  int64_t own_column, own_columns;               // those whose gradients it gives
};

// What a task does: images [image, end_image), of each strips [strip, end_strip), of each a band.
struct BackwardPart {
  int64_t image, end_image;
  int64_t strip, end_strip;
  int64_t band;
};

struct BackwardTasks {
  // Tasks are several images, or strips and bands of one image, so that there are about `most`.
  // ring_floats: what a worker holds for every pixel; gradient_floats: of these, its gradient.
  BackwardTasks(const WindowShape& s, int64_t ring_floats, int64_t gradient_floats, int64_t most)
      : shape(s) {
    cut_columns(ring_floats);
    const int64_t batch = std::max<int64_t>(1, s.batch);
    images = (batch - 1) / most + 1;  // per task
    image_groups = (s.batch + images - 1) / images;
    const int64_t wanted = images > 1 ? 1 : (most - 1) / batch + 1;  // tasks per image
    task_strips = (strips - 1) / wanted + 1;
    strip_groups = (strips - 1) / task_strips + 1;
    cut_rows(std::max<int64_t>(1, wanted / strips), batch * strips, gradient_floats);
    count = image_groups * strip_groups * bands;
  }

  // The bands of a strip are tasks one after the other.
  BackwardPart part(int64_t task) const {
    const int64_t image = task / bands / strip_groups * images;
    const int64_t strip = task / bands % strip_groups * task_strips;
    return {image, std::min(shape.batch, image + images), strip,
            std::min(strips, strip + task_strips), task % bands};
  }

  ColumnStrip strip(int64_t index) const {
    const WindowShape& s = shape;
    const auto first_own = [&](int64_t i) { return i * s.out_width() / strips; };
    const auto column_of = [&](int64_t window) {
      return std::clamp<int64_t>(window * s.stride_w - s.pad_left, 0, s.width);
    };
    ColumnStrip c;
    c.own_window = first_own(index);
    c.end_window = first_own(index + 1);
    c.first_window = std::max<int64_t>(0, c.own_window - shared_windows());
    c.own_column = index == 0 ? 0 : column_of(c.own_window);
    const int64_t own_end = index + 1 == strips ? s.width : column_of(c.end_window);
    c.own_columns = own_end - c.own_column;
    const int64_t reach =
        std::clamp<int64_t>((c.end_window - 1) * s.stride_w - s.pad_left + s.span_w(), 0, s.width);
    c.origin = std::min(c.own_column, column_of(c.first_window));
    c.columns = std::max(own_end, reach) - c.origin;
    return c;
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
  // Rows that a task's band keeps for the band before it and for the one after it.
  int64_t head_rows(int64_t task) const { return task % bands == 0 ? 0 : edge_rows; }
  int64_t tail_rows(int64_t task) const { return task % bands == bands - 1 ? 0 : edge_rows; }

  const WindowShape& shape;
  int64_t images, image_groups;
  int64_t strips;
  int64_t task_strips, strip_groups;             // strips per task; more than one means one band
  int64_t strip_windows = 0, strip_columns = 0;  // of the widest strip: computed, held
  int64_t bands, band_rows;
  int64_t count;
  int64_t edge_rows;

 private:
  // Windows that reach from one strip into the next.
  int64_t shared_windows() const { return (shape.span_w() - 1) / shape.stride_w; }

  void cut_columns(int64_t ring_floats) {
    const int64_t column_bytes =
        std::min(shape.span_h(), shape.height) * ring_floats * int64_t{sizeof(float)};
    const int64_t fit = kBackwardRingBytes / column_bytes / shape.stride_w;
    // Neighbouring strips compute some windows twice: keep that a small part.
    const int64_t wanted = std::max({kLeastStripWindows, 32 * shared_windows(), fit});
    strips = std::max<int64_t>(1, shape.out_width() / wanted);
    for (int64_t i = 0; i < strips; ++i) {
      strip_windows = std::max(strip_windows, strip(i).windows());
      strip_columns = std::max(strip_columns, strip(i).columns);
    }
  }

  // At most `most` bands in each of `rectangles` strips of all images.
  void cut_rows(int64_t most, int64_t rectangles, int64_t gradient_floats) {
    const WindowShape& s = shape;
    edge_rows = std::max<int64_t>(0, s.span_h() - s.stride_h);
    const int64_t edge_bytes =
        2 * edge_rows * strip_columns * gradient_floats * int64_t{sizeof(float)};
    most = std::min(most, kBandEdgeBytes / std::max<int64_t>(1, rectangles * edge_bytes) + 1);
    // A band's windows may reach into the next band, but not through it; and the rows it shares
    // with its neighbours should be few among its own.
    const int64_t least = std::max<int64_t>(8, 3 * ((s.span_h() - 1) / s.stride_h + 1));
    bands = std::clamp<int64_t>(s.out_height() / least, 1, most);
    band_rows = (s.out_height() - 1) / bands + 1;
    bands = (s.out_height() - 1) / band_rows + 1;
  }
};

// A worker's rows of gradient in work: the input row y is row y % rows of the ring.
struct GradientRing {
  float* slot(int64_t y) const { return data + y % rows * row_floats; }
  float* data;
  int64_t rows;
  int64_t row_floats;
};

// What a band leaves behind for its neighbours.
struct BandEdges {
  float* head;  // its first rows, shared with the band before
  float* tail;  // rows of the next band
};

// One band of an image, row of windows by row of windows.
//   fill(first, count): input rows [first, first + count) enter the ring, at most `fill_rows` at a
//     time and without a break; their gradients start at 0.
//   visit(i): adds what the windows of output row i contribute.
//   take(row, gradients): gets finished rows in order, but for those at the band's edges.
template <typename Fill, typename Visit, typename Take>
void run_band(const BackwardTasks& tasks, int64_t band, const GradientRing& ring, int64_t fill_rows,
              const BandEdges& edges, const Fill& fill, const Visit& visit, const Take& take) {
  const WindowShape& s = tasks.shape;
  const int64_t begin = tasks.begin_row(band);
  const int64_t end = tasks.begin_row(band + 1);
  const int64_t last = std::max(end, tasks.reach(band));  // one past the last row that is filled
  const int64_t shared = tasks.shared_rows(band);
  const size_t row_bytes = ring.row_floats * sizeof(float);
  int64_t filled = begin;   // rows before this one entered the ring
  int64_t flushed = begin;  // rows before this one left it
  const auto flush_until = [&](int64_t limit) {
    for (; flushed < limit; ++flushed) {
      const float* row = ring.slot(flushed);
      if (flushed >= end) {
        std::memcpy(edges.tail + (flushed - end) * ring.row_floats, row, row_bytes);
      } else if (flushed < begin + shared) {
        std::memcpy(edges.head + (flushed - begin) * ring.row_floats, row, row_bytes);
      } else {
        take(flushed, row);
      }
    }
  };
  const auto fill_until = [&](int64_t limit) {
    while (filled < limit) {
      const int64_t count = std::min({fill_rows, last - filled, ring.rows - filled % ring.rows});
      flush_until(filled + count - ring.rows);  // the rows that held these slots
      fill(filled, count);
      std::fill_n(ring.slot(filled), count * ring.row_floats, 0.0f);
      filled += count;
    }
  };
  for (int64_t i = tasks.first_window(band); i < tasks.end_window(band); ++i) {
    fill_until(tasks.clamp_row(i * s.stride_h - s.pad_top + s.span_h()));
    visit(i);
  }
  fill_until(end);  // rows below the last window: no gradient
  flush_until(last);
}

// The rows to which a task's band and the one before it contributed; take(row, gradients).
template <typename Take>
void add_edges(const BackwardTasks& tasks, int64_t task, const BandEdges& before,
               const BandEdges& own, int64_t row_floats, const Take& take) {
  const int64_t band = task % tasks.bands;
  for (int64_t r = 0; r < tasks.shared_rows(band); ++r) {
    float* head = own.head + r * row_floats;
    const float* tail = before.tail + r * row_floats;
    for (int64_t c = 0; c < row_floats; ++c) head[c] = tail[c] + head[c];
    take(tasks.begin_row(band) + r, head);
  }
}

}  // namespace qna::kernels
