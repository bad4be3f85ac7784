#include "qna/image/image.h"

#include "qna/base/error.h"

namespace qna::image {

Image make_image(int64_t height, int64_t width, int64_t channels) {
  Image image{height, width, channels, {}};
  image.pixels.resize(static_cast<size_t>(height * width * channels));
  return image;
}

void check_image(const Image& image, std::string_view where) {
  check(image.channels == 1 || image.channels == 3,
        "{}: a picture must have 1 or 3 channels, got {}", where, image.channels);
  check(
      image.height >= 1 && image.height <= kMaxSide && image.width >= 1 && image.width <= kMaxSide,
      "{}: the sides of a picture must be in [1, {}], got height {} and width {}", where, kMaxSide,
      image.height, image.width);
  const int64_t bytes = image.height * image.width * image.channels;
  check(static_cast<int64_t>(image.pixels.size()) == bytes,
        "{}: a picture of {} x {} x {} must have {} bytes of pixels, got {}", where, image.height,
        image.width, image.channels, bytes, image.pixels.size());
}

}  // namespace qna::image
