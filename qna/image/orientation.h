// How a camera was held, from an image's EXIF data.
//
//   1 upright              5 mirrored at the diagonal from top left
//   2 mirrored left-right  6 to be turned a quarter to the right
//   3 upside down          7 mirrored at the other diagonal
//   4 mirrored top-bottom  8 to be turned a quarter to the left
#pragma once

#include <cstdint>
#include <span>

#include "qna/image/image.h"

namespace qna::image {

// From the TIFF structure inside EXIF data. Never fails: 1 where the data is broken or silent,
// because many cameras and programs write broken EXIF, and the pixels are what matters.
int exif_orientation(std::span<const uint8_t> tiff);

// The image as it is meant to be seen.
Image turn_upright(Image image, int orientation);

}  // namespace qna::image
