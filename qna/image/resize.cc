#include "qna/image/resize.h"

#include <utility>

#include "qna/base/error.h"
#include "qna/image/resize_simd.h"
#include "qna/image/resize_weights.h"

namespace qna::image {
namespace {

Box checked_box(const Image& image, const std::optional<Box>& given) {
  const double width = static_cast<double>(image.width);
  const double height = static_cast<double>(image.height);
  const Box box = given.value_or(Box{0, 0, width, height});
  // In this form NaN fails too.
  check(box.left >= 0 && box.left < box.right && box.right <= width && box.top >= 0 &&
            box.top < box.bottom && box.bottom <= height,
        "resize: the box must lie in the picture of {} x {} (width x height) and not be empty, got "
        "left {}, top {}, right {}, bottom {}",
        image.width, image.height, box.left, box.top, box.right, box.bottom);
  return box;
}

bool is_whole(double from, double to, int64_t size) {
  return from == 0 && to == static_cast<double>(size);
}

}  // namespace

Image resize(const Image& image, int64_t height, int64_t width, Filter filter,
             const std::optional<Box>& given_box) {
  check_image(image, "resize");
  // The largest image has as many pixels as one that may be read by default.
  constexpr int64_t kMaxPixels = int64_t{1} << 28;
  check(height >= 1 && width >= 1 && height <= kMaxSide && width <= kMaxSide &&
            height * width <= kMaxPixels,
        "resize: height and width must be at least 1 and make at most {} pixels, got {} and {}",
        kMaxPixels, height, width);
  const Box box = checked_box(image, given_box);
  const bool same_width = width == image.width && is_whole(box.left, box.right, width);
  const bool same_height = height == image.height && is_whole(box.top, box.bottom, height);
  if (same_width && same_height) return image;

  if (same_height) {
    Image out = make_image(height, width, image.channels);
    resize_columns(out, image, 0, resize_weights(image.width, box.left, box.right, width, filter));
    return out;
  }
  ResizeWeights rows = resize_weights(image.height, box.top, box.bottom, height, filter);
  Image out = make_image(height, width, image.channels);
  if (same_width) {
    resize_rows(out, image, rows);
    return out;
  }
  // The width first, and only of the rows that are needed afterwards.
  const int64_t first = rows.first();
  Image narrow = make_image(rows.end() - first, width, image.channels);
  resize_columns(narrow, image, first,
                 resize_weights(image.width, box.left, box.right, width, filter));
  rows.shift(-first);
  resize_rows(out, narrow, rows);
  return out;
}

}  // namespace qna::image
