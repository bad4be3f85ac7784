#include "qna/image/crop.h"

#include <algorithm>

#include "qna/base/error.h"

namespace qna::image {
namespace {

// Copies a rectangle; both places lie inside their images.
struct Place {
  int64_t top;
  int64_t left;
};
void copy(Image& to, Place to_place, const Image& from, Place from_place, int64_t height,
          int64_t width) {
  for (int64_t y = 0; y < height; ++y) {
    std::copy_n(from.row(from_place.top + y) + from_place.left * from.channels,
                width * from.channels, to.row(to_place.top + y) + to_place.left * to.channels);
  }
}

// Python's round(difference / 2): halves go to the even number.
int64_t half_to_even(int64_t difference) {
  const int64_t low = difference / 2;
  return low + (difference % 2 != 0 && low % 2 != 0 ? 1 : 0);
}

// One axis of a centre crop: where to read, where to write, how much.
struct Middle {
  Middle(int64_t have, int64_t want)
      : from(have > want ? half_to_even(have - want) : 0),
        to(have < want ? (want - have) / 2 : 0),
        count(std::min(have, want)) {}
  int64_t from;
  int64_t to;
  int64_t count;
};

}  // namespace

Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  check_image(image, "crop");
  // Written so that no sum of arguments can overflow.
  check(top >= 0 && height >= 1 && height <= image.height && top <= image.height - height &&
            left >= 0 && width >= 1 && width <= image.width && left <= image.width - width,
        "crop: the rectangle must lie in the picture of {} x {} (width x height), got {} x {} at "
        "left {}, top {}",
        image.width, image.height, width, height, left, top);
  Image out = make_image(height, width, image.channels);
  copy(out, {0, 0}, image, {top, left}, height, width);
  return out;
}

Image center_crop(const Image& image, int64_t height, int64_t width) {
  check_image(image, "center_crop");
  check(height >= 1 && width >= 1 && height <= kMaxSide && width <= kMaxSide,
        "center_crop: height and width must be in [1, {}], got {} and {}", kMaxSide, height, width);
  const Middle rows(image.height, height);
  const Middle columns(image.width, width);
  Image out = make_image(height, width, image.channels);
  copy(out, {rows.to, columns.to}, image, {rows.from, columns.from}, rows.count, columns.count);
  return out;
}

Image flip(const Image& image) {
  check_image(image, "flip");
  Image out = make_image(image.height, image.width, image.channels);
  for (int64_t y = 0; y < image.height; ++y) {
    if (image.channels == 1) {
      std::reverse_copy(image.row(y), image.row(y) + image.width, out.row(y));
      continue;
    }
    const uint8_t* from = image.row(y) + image.row_bytes();
    uint8_t* to = out.row(y);
    for (int64_t x = 0; x < image.width; ++x, to += 3) {
      from -= 3;
      to[0] = from[0];
      to[1] = from[1];
      to[2] = from[2];
    }
  }
  return out;
}

}  // namespace qna::image
