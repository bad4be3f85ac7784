#include "qna/image/color.h"

#include <algorithm>

namespace qna::image {
namespace {

// round(a * b / 255) for a, b in [0, 255].
int multiply(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

}  // namespace

Image to_channels(Image image, int64_t channels) {
  if (image.channels == channels) return image;
  Image out = make_image(image.height, image.width, channels);
  const int64_t pixels = image.height * image.width;
  const uint8_t* from = image.pixels.data();
  uint8_t* to = out.pixels.data();
  if (channels == 1) {
    for (int64_t i = 0; i < pixels; ++i) to[i] = luma(from + 3 * i);
  } else {
    for (int64_t i = 0; i < pixels; ++i) std::fill_n(to + 3 * i, 3, from[i]);
  }
  return out;
}

void inverted_cmyk_to_rgb(uint8_t* rgb, const uint8_t* cmyk, int64_t pixels) {
  for (int64_t i = 0; i < pixels; ++i, rgb += 3, cmyk += 4) {
    const int light = cmyk[3];  // what black leaves
    for (int c = 0; c < 3; ++c) {
      rgb[c] = static_cast<uint8_t>(std::max(0, light - multiply(255 - cmyk[c], light)));
    }
  }
}

}  // namespace qna::image
