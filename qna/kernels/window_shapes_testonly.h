// The shapes that all operators with sliding windows are tested on: window attention, the QnA
// layer, stand-alone self-attention.
#pragma once

#include <algorithm>
#include <random>
#include <string>

#include "qna/base/error.h"
#include "qna/kernels/window_shape.h"

namespace qna::kernels::testing {

// A shape in few words: batch, height, width, heads, dim, queries; then what is not a 3 x 3 window
// without padding.
struct Map : WindowShape {
  Map(int64_t batch_in, int64_t height_in, int64_t width_in, int64_t heads_in = 1, int64_t dim = 1,
      int64_t queries_in = 1) {
    batch = batch_in, height = height_in, width = width_in;
    heads = heads_in, head_dim = dim, queries = queries_in;
  }
  Map kernel(int64_t h, int64_t w) const {
    Map next = *this;
    next.kernel_h = h, next.kernel_w = w;
    return next;
  }
  Map stride(int64_t h, int64_t w) const {
    Map next = *this;
    next.stride_h = h, next.stride_w = w;
    return next;
  }
  Map dilation(int64_t h, int64_t w) const {
    Map next = *this;
    next.dilation_h = h, next.dilation_w = w;
    return next;
  }
  Map padding(int64_t top, int64_t bottom, int64_t left, int64_t right) const {
    Map next = *this;
    next.pad_top = top, next.pad_bottom = bottom, next.pad_left = left, next.pad_right = right;
    return next;
  }
  // The padding that keeps the map's size at stride 1 and odd windows.
  Map padded() const { return padding(kernel_h / 2, kernel_h / 2, kernel_w / 2, kernel_w / 2); }
};

struct WindowRow {
  const char* what;
  WindowShape shape;
  // Of the layer. Up-sampling takes upsample^2 queries.
  int64_t in_features = 8, out_features = 8, upsample = 1;
  bool bare = false;  // no bias of any kind, no tap weights, but a mask
};

// The edges: a name says what the row is for.
inline const WindowRow kWindowRows[] = {
    {"one pixel, one tap, one feature", Map(1, 1, 1).kernel(1, 1), 1, 1},
    {"one pixel under a padded window", Map(1, 1, 1).padded()},
    {"the usual layer", Map(2, 6, 13, 8, 8, 2).padded(), 64, 64},
    {"the usual layer, more rows", Map(2, 9, 13, 8, 8, 2).padded()},
    {"full vectors, many value vectors", Map(1, 5, 11, 16, 20, 2).padded()},
    {"more heads than any vector has lanes", Map(1, 4, 7, 37, 2, 3).padding(0, 0, 1, 0)},
    {"one head, many dimensions", Map(1, 5, 9, 1, 128, 2).padding(0, 0, 2, 0)},
    {"heads that fill no vector", Map(2, 7, 9, 5, 3, 3).padded(), 7, 7},
    {"mask, no bias of any kind", Map(2, 7, 9, 5, 3, 3).padded(), 7, 7, 1, true},
    {"window of 7", Map(1, 15, 17, 4, 8, 2).kernel(7, 7).padded()},
    {"window of 7 on a small map", Map(1, 9, 10, 4, 8, 2).kernel(7, 7).padded(), 33, 31},
    {"window of 7, heads that fill no vector", Map(1, 9, 10, 3, 5, 2).kernel(7, 7).padded(), 21,
     21},
    {"even window", Map(1, 8, 9, 3, 5, 2).kernel(2, 4).padding(0, 1, 1, 2)},
    {"flat window", Map(1, 6, 14, 4, 4).kernel(1, 9).padded()},
    {"upright window", Map(1, 14, 6, 4, 4).kernel(9, 1).padded()},
    {"dilated", Map(1, 12, 19, 6, 5, 2).padding(2, 2, 3, 3).dilation(2, 3)},
    {"dilated, one-sided padding",
     Map(1, 9, 12, 3, 7, 3).kernel(2, 4).stride(1, 3).padding(3, 0, 0, 5).dilation(3, 2), 5, 9},
    {"strided", Map(2, 13, 22, 8, 6, 2).stride(2, 2).padded()},
    {"down-sampling", Map(2, 11, 14, 6, 5, 2).stride(2, 2).padded(), 16, 30},
    {"down-sampling, window of 7", Map(1, 15, 20, 1, 11, 2).kernel(7, 7).stride(3, 2).padded(), 33,
     9},
    {"stride larger than the window",
     Map(1, 20, 31, 5, 3, 2).kernel(2, 2).stride(5, 4).padding(1, 0, 1, 0)},
    {"strided and dilated, rectangular",
     Map(1, 17, 23, 3, 7, 4).kernel(4, 3).stride(3, 2).padding(5, 1, 0, 6).dilation(2, 4)},
    {"padding above only", Map(1, 7, 7, 2, 3, 2).padding(2, 0, 0, 0)},
    {"padding below only", Map(1, 7, 7, 2, 3, 2).padding(0, 2, 0, 0)},
    {"padding left only", Map(1, 7, 7, 2, 3, 2).padding(0, 0, 2, 0)},
    {"padding right only", Map(1, 7, 7, 2, 3, 2).padding(0, 0, 0, 2)},
    {"window larger than the map", Map(1, 3, 4, 4, 5, 2).kernel(9, 11).padded()},
    {"window larger than a tiny map", Map(1, 2, 3, 4, 4, 2).kernel(7, 9).padded()},
    {"windows completely in the padding", Map(1, 4, 5, 3, 4, 2).padding(6, 7, 8, 5)},
    {"windows in the padding of a tiny map", Map(1, 3, 4, 3, 4, 2).padding(5, 6, 7, 4)},
    {"windows in the padding, strided and dilated",
     Map(1, 3, 2, 3, 4, 2).stride(2, 3).padding(7, 9, 11, 9).dilation(3, 2)},
    {"one row", Map(1, 1, 33, 8, 4, 2).padded()},
    {"one column", Map(1, 33, 1, 8, 4, 2).padded()},
    {"one column, one query", Map(1, 40, 1, 4, 4).padded()},
    {"no image", Map(0, 5, 5, 3, 2, 2)},
    {"more images than the backward has tasks", Map(35, 3, 4, 2, 3, 2).padded()},
    {"tall: many bands with shared rows", Map(1, 83, 5, 2, 3, 2).kernel(5, 3).padded()},
    {"tall, padding left only", Map(1, 83, 5, 2, 3, 2).kernel(5, 3).padding(2, 2, 1, 0)},
    {"tall and strided: bands that share no row",
     Map(1, 90, 4, 2, 3, 2).kernel(2, 3).stride(3, 1).padding(0, 0, 1, 1)},
    {"rows below the last window", Map(1, 30, 9, 2, 3, 2).stride(7, 5)},
    // More pixels than are normalised or converted at a time.
    {"long rows", Map(1, 3, 131, 4, 4, 2).padded(), 20, 20},
    {"long rows, one feature more", Map(1, 3, 131, 4, 4, 2).padded(), 20, 21},
    {"wide: column strips in the forward pass", Map(1, 5, 700, 8, 4, 2).padded()},
    {"wide, few rows", Map(1, 3, 700, 8, 4, 2).padded()},
    {"wide, few features", Map(1, 4, 700, 4, 2, 2).padded(), 5, 5},
    {"wide, one row, strips with padding on both sides",
     Map(1, 1, 900, 16, 8, 1).kernel(7, 7).stride(1, 2).padding(3, 3, 70, 90)},
    {"up-sampling by 2", Map(2, 5, 9, 4, 6, 4).padded(), 12, 10, 2},
    {"up-sampling by 2, heads that fill no vector", Map(2, 5, 9, 3, 6, 4).padded(), 12, 10, 2},
    {"up-sampling by 3", Map(1, 4, 6, 3, 5, 9).padded(), 7, 17, 3},
    {"up-sampling with stride", Map(1, 7, 11, 2, 9, 4).stride(2, 3).padded(), 7, 4, 2},
    {"up-sampling by 3 with stride", Map(1, 7, 11, 2, 9, 9).stride(2, 3).padded(), 7, 17, 3},
    {"strips, up-sampled", Map(1, 2, 700, 3, 3, 4).padded(), 2, 3, 2},
};

// Maps that are cut into bands and strips, for the tests with several workers.
inline const WindowRow kBandRows[] = {
    {"bands", Map(1, 40, 23, 8, 4, 2).padded(), 9, 7},
    {"bands of several images, strided",
     Map(3, 29, 17, 3, 5, 3).kernel(5, 4).stride(2, 1).padding(2, 2, 2, 1), 9, 7},
    {"strips of columns", Map(1, 9, 300, 16, 4, 2).kernel(7, 7).padded(), 9, 7},
    {"dilated, up-sampling", Map(2, 33, 6, 2, 3, 4).padding(2, 2, 2, 2).dilation(2, 2), 9, 7, 2},
    {"more images than the backward pass has tasks", Map(19, 5, 6, 2, 3, 2).padded(), 9, 7},
};

// Maps that the backward pass cuts into strips, without many taps: rows that lie far apart, and
// many features, fill a worker's memory.
inline const WindowRow kStripRows[] = {
    {"strips", Map(1, 19, 300, 8, 12, 2).dilation(8, 1).padding(8, 8, 1, 1)},
    {"strips whose windows share many columns",
     Map(1, 17, 470, 8, 12, 2).kernel(3, 7).dilation(8, 1).padding(8, 8, 3, 3)},
    {"strips, strided and dilated",
     Map(2, 18, 430, 8, 12, 2).dilation(8, 3).stride(2, 2).padding(8, 8, 4, 2)},
    {"strips that share no column", Map(1, 17, 701, 8, 12, 2).dilation(8, 1).stride(1, 5)},
    {"strips beside the map", Map(1, 17, 40, 8, 12, 2).dilation(8, 1).padding(8, 8, 150, 170), 9,
     7},
    {"strips and bands", Map(1, 80, 260, 8, 12, 2).dilation(4, 1).padding(4, 4, 1, 1)},
    {"strips of several images", Map(3, 17, 200, 5, 19, 3).dilation(8, 1).padding(8, 8, 1, 1)},
    {"more strips than tasks", Map(1, 17, 2400, 8, 12, 2).dilation(8, 1).padding(8, 8, 1, 1)},
    {"more strips than tasks, one row of windows",
     Map(1, 17, 2400, 8, 12, 2).dilation(8, 1).padding(0, 0, 1, 1)},
    {"strips, up-sampled", Map(1, 17, 200, 8, 12, 4).dilation(8, 1).padding(8, 8, 1, 1), 6, 5, 2},
};

inline std::string text(const WindowShape& s) {
  return fmt::format(
      "[batch {}, {} x {}, heads {}, dim {}, queries {}, kernel {} x {}, stride {} x {}, padding "
      "{} {} {} {}, dilation {} x {}, {}]",
      s.batch, s.height, s.width, s.heads, s.head_dim, s.queries, s.kernel_h, s.kernel_w,
      s.stride_h, s.stride_w, s.pad_top, s.pad_bottom, s.pad_left, s.pad_right, s.dilation_h,
      s.dilation_w, s.separate ? "separate" : "combined");
}

// Any shape, small enough for the reference.
struct RandomShapes {
  explicit RandomShapes(uint32_t seed) : random(seed) {}
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  }
  bool coin() { return random() % 2 == 0; }

  WindowShape shape() {
    WindowShape s;
    s.batch = between(1, 3);
    s.height = between(1, 12);
    s.width = between(1, 24);
    s.heads = between(1, 20);
    s.head_dim = between(1, 12);
    s.queries = between(1, 5);
    s.kernel_h = between(1, 6);
    s.kernel_w = between(1, 6);
    s.stride_h = between(1, 3);
    s.stride_w = between(1, 3);
    s.dilation_h = between(1, 2);
    s.dilation_w = between(1, 2);
    s.pad_top = between(0, 4);
    s.pad_bottom = between(0, 4);
    s.pad_left = between(0, 4);
    s.pad_right = between(0, 4);
    s.separate = coin();
    // The window must fit: padding where the map is too small.
    s.pad_bottom += std::max<int64_t>(0, s.span_h() - s.height - s.pad_top - s.pad_bottom);
    s.pad_right += std::max<int64_t>(0, s.span_w() - s.width - s.pad_left - s.pad_right);
    return s;
  }

  std::mt19937 random;
};

}  // namespace qna::kernels::testing
