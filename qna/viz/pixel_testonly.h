#pragma once

#include "qna/image/image.h"
#include "qna/viz/palette.h"

namespace qna::viz {

inline Color pixel(const image::Image& image, int64_t y, int64_t x) {
  const uint8_t* p = image.row(y) + 3 * x;
  return {p[0], p[1], p[2]};
}

}  // namespace qna::viz
