// Parts of an image, and it mirrored.
#pragma once

#include <cstdint>

#include "qna/image/image.h"

namespace qna::image {

// The rectangle whose top left pixel is (top, left); it must lie inside.
Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width);

// The middle, as torchvision's CenterCrop: black is put around an image that is too small, and a
// half pixel rounds to the even side.
Image center_crop(const Image& image, int64_t height, int64_t width);

// Left becomes right.
Image flip(const Image& image);

}  // namespace qna::image
