// The cut of a backward pass: whatever the shape, every window, pixel and row of windows is
// somebody's and nobody else's, and who gives a pixel's gradient computes all windows that see it.
#include "qna/kernels/backward_bands.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "qna/kernels/window_shapes_testonly.h"

namespace qna::kernels::testing {
namespace {

bool sees(const WindowShape& s, int64_t window, int64_t column) {
  const int64_t from_first = column - (window * s.stride_w - s.pad_left);
  return from_first >= 0 && from_first < s.span_w() && from_first % s.dilation_w == 0;
}

void check_strips(const BackwardTasks& tasks) {
  const WindowShape& s = tasks.shape;
  int64_t window = 0, column = 0;
  for (int64_t i = 0; i < tasks.strips; ++i) {
    const ColumnStrip strip = tasks.strip(i);
    ASSERT_EQ(strip.own_window, window);
    ASSERT_EQ(strip.own_column, column);
    window = strip.end_window;
    column += strip.own_columns;
    EXPECT_LE(strip.windows(), tasks.strip_windows);
    EXPECT_LE(strip.columns, tasks.strip_columns);
    EXPECT_LE(strip.origin, strip.own_column);
    EXPECT_LE(column, strip.origin + strip.columns);
    for (int64_t j = 0; j < s.out_width(); ++j) {
      const bool computed = j >= strip.first_window && j < strip.end_window;
      for (int64_t x = 0; x < s.width; ++x) {
        if (!sees(s, j, x)) continue;
        const bool held = x >= strip.origin && x < strip.origin + strip.columns;
        const bool own = x >= strip.own_column && x < column;
        ASSERT_TRUE(computed ? held : !own) << "strip " << i << " window " << j << " column " << x;
      }
    }
  }
  EXPECT_EQ(window, s.out_width());
  EXPECT_EQ(column, s.width);
}

void check_tasks(const BackwardTasks& tasks) {
  std::set<std::tuple<int64_t, int64_t, int64_t>> done;
  for (int64_t task = 0; task < tasks.count; ++task) {
    const BackwardPart part = tasks.part(task);
    const int64_t rectangles = (part.end_image - part.image) * (part.end_strip - part.strip);
    EXPECT_GT(rectangles, 0);
    EXPECT_TRUE(tasks.bands == 1 || rectangles == 1);  // a band's edges are kept by task
    for (int64_t image = part.image; image < part.end_image; ++image)
      for (int64_t strip = part.strip; strip < part.end_strip; ++strip) {
        EXPECT_TRUE(done.insert({image, strip, part.band}).second);
      }
  }
  EXPECT_EQ(static_cast<int64_t>(done.size()), tasks.shape.batch * tasks.strips * tasks.bands);
}

constexpr int64_t kHuge = 1 << 20;  // floats per pixel: strips as narrow as they get

TEST(BackwardTasks, EveryWindowAndColumnOnce) {
  RandomShapes random(7);
  int64_t with_strips = 0;
  for (int round = 0; round < 300; ++round) {
    WindowShape shape = random.shape();
    shape.width = random.between(1, 600);
    if (round % 5 == 0) shape.pad_left += random.between(1, 200);
    if (round % 7 == 0) shape.pad_right += random.between(1, 200);
    if (round % 9 == 0) shape.stride_w = random.between(1, 9);
    SCOPED_TRACE(text(shape));
    const BackwardTasks tasks(shape, kHuge, 1, random.between(4, kMostBackwardTasks));
    check_strips(tasks);
    check_tasks(tasks);
    with_strips += tasks.strips > 1 ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(with_strips, 100);
}

// Else the sweeps would not test them.
TEST(BackwardTasks, TheRowsForStripsHaveStrips) {
  for (const WindowRow& row : kStripRows) {
    SCOPED_TRACE(row.what);
    const int64_t floats = 2 * (row.shape.features() + row.shape.scores()) + row.shape.scores();
    const BackwardTasks tasks(row.shape, floats, floats / 2, kMostBackwardTasks);
    EXPECT_GT(tasks.strips, 1);
    EXPECT_EQ(tasks.bands > 1, row.shape.height == 80);
    EXPECT_EQ(tasks.task_strips > 1, row.shape.width == 2400);
  }
}

// One strip where the windows between two would be many among their own.
TEST(BackwardTasks, UsualMapsAreOneStrip) {
  for (const int64_t kernel : {3, 7, 13}) {
    const BackwardTasks tasks(Map(1, 256, 256, 8, 8, 2).kernel(kernel, kernel).padded(), 176, 80,
                              kMostBackwardTasks);
    EXPECT_EQ(tasks.strips, 1);
    EXPECT_GE(tasks.count, 6);
  }
}

TEST(BackwardTasks, EdgesOfBandsAreBounded) {
  for (const int64_t kernel : {3, 7, 13})
    for (const int64_t size : {64, 500, 1000, 4000, 20000}) {
      const BackwardTasks tasks(Map(2, size, size, 8, 8, 2).kernel(kernel, kernel).padded(), 176,
                                80, kMostBackwardTasks);
      int64_t rows = 0;
      for (int64_t task = 0; task < tasks.count; ++task) {
        rows += tasks.head_rows(task) + tasks.tail_rows(task);
      }
      EXPECT_LE(rows * tasks.strip_columns * 80 * 4, kBandEdgeBytes);
      EXPECT_LE(tasks.count, kMostBackwardTasks);
    }
}

}  // namespace
}  // namespace qna::kernels::testing
