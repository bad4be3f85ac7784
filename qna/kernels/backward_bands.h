// How a backward pass is cut into bands of output rows, and what becomes of the rows of gradient to
// which two bands contribute.
//
// The answer must not depend on the number of workers, so the cut into bands depends on the shape
// alone, and the rows that a band's last windows share with the next band's first ones are added
// afterwards, in a fixed order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "qna/kernels/window_shape.h"

namespace qna::kernels {

// Most tasks a backward pass is cut into, whatever the machine.
constexpr int64_t kMostBackwardTasks = 32;

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

// A worker's rows of gradient in work: the input row y is row y % rows of the ring.
struct GradientRing {
  float* slot(int64_t y) const { return data + y % rows * row_floats; }
  float* data;
  int64_t rows;
  int64_t row_floats;
};

// What a band leaves behind for its neighbours: tasks.edge_rows rows each.
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
