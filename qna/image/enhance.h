// Changes of strength, equal to the bit to those of Pillow's ImageEnhance: an image is mixed with
// a poorer one, plain + factor * (image - plain) in float32, rounded down and clipped. A factor of
// 0 gives the poorer one, 1 the image as it is, more overdoes it.
#pragma once

#include "qna/image/image.h"

namespace qna::image {

Image brightness(Image image, double factor);  // plain: black
Image contrast(Image image, double factor);    // plain: one grey, the mean of the luma, rounded
Image saturation(Image image, double factor);  // plain: the luma; a grey image stays as it is

// plain: each pixel the mean of the 3 x 3 around it, itself counted 5 times, rounded. Pixels at the
// edges stay as they are, as does an image with a side below 3.
Image sharpness(const Image& image, double factor);

}  // namespace qna::image
