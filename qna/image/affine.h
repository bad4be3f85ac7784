// Images turned, sheared and shifted, equal to the bit to Image.transform(AFFINE) of Pillow.
#pragma once

#include <array>
#include <cstdint>

#include "qna/image/image.h"
#include "qna/image/resize.h"

namespace qna::image {

// Which place of the source a pixel shows:
//   u = a (x + 1/2) + b (y + 1/2) + c
//   v = d (x + 1/2) + e (y + 1/2) + f
// where (0, 0) is the outer corner of the first pixel.
struct Affine {
  double a, b, c;
  double d, e, f;
};

// Red, green, blue; a grey image takes the first.
using Color = std::array<uint8_t, 3>;

// An image of the same size. Places outside the source get the colour `fill`; near its edges the
// outermost pixels are taken to go on. In double precision, without antialiasing, rounded down and
// clipped. Unlike resize's, the cubic has a = -1, as Pillow has it here:
//   v1 + t ((v2 - v0) + t ((2 v0 - 2 v1 + v2 - v3) + t (v1 - v0 + v3 - v2)))
// along the rows first.
Image affine(const Image& image, const Affine& map, Filter filter, const Color& fill);

// Around the middle, counter-clockwise, as Pillow's Image.rotate.
Image rotate(const Image& image, double degrees, Filter filter, const Color& fill);

Image shear_x(const Image& image, double factor, Filter filter, const Color& fill);  // b = factor
Image shear_y(const Image& image, double factor, Filter filter, const Color& fill);  // d = factor
// By a share of the width or height; above 0 is to the left or up.
Image translate_x(const Image& image, double share, Filter filter, const Color& fill);
Image translate_y(const Image& image, double share, Filter filter, const Color& fill);

}  // namespace qna::image
