// Images to another size, equal to the bit to Image.resize of Pillow up to 12.1, with which most
// published models were trained and measured. Newer ones resize the height first when it shrinks
// more than the width; some pixels then differ, by the rounding and clipping in between.
#pragma once

#include <cstdint>
#include <optional>

#include "qna/image/image.h"

namespace qna::image {

// When an image shrinks, the filter is widened by the same factor, so nothing is skipped
// (antialiasing).
enum class Filter {
  kBilinear,  // a triangle over 2 pixels
  kBicubic,   // Keys' cubic over 4 pixels with a = -0.5
};

// A part of an image, in pixels; (0, 0) is the outer corner of the first pixel, so fractions of
// pixels can be cut off.
struct Box {
  double left;
  double top;
  double right;
  double bottom;
};

// The image, or the part of it in `box`, at the given size. Near its edges a box looks beyond
// them, as Pillow's `box=` does.
Image resize(const Image& image, int64_t height, int64_t width, Filter filter,
             const std::optional<Box>& box = std::nullopt);

}  // namespace qna::image
