#pragma once

#include <string>

#include "qna/base/random.h"
#include "qna/image/image.h"

namespace qna::data {

// Pixels from `least` on, of that many values.
inline image::Image speckles(int64_t height, int64_t width, int64_t channels, int64_t least = 0,
                             int64_t values = 256) {
  image::Image image = image::make_image(height, width, channels);
  Random random(9);
  for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(least + random.below(values));
  return image;
}

inline std::string bytes(const image::Image& image) {
  return {image.pixels.begin(), image.pixels.end()};
}

}  // namespace qna::data
