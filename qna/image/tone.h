// Changes of tone, each channel by itself, equal to the bit to those of Pillow's ImageOps.
#pragma once

#include "qna/image/image.h"

namespace qna::image {

// Stretches each channel so that its darkest value becomes 0 and its lightest 255; a channel of one
// value stays as it is.
Image autocontrast(Image image);

// Spreads the values of each channel so that all are about equally frequent: a value becomes
// (step / 2 + count of darker pixels) / step, in whole numbers, where step is a 255th of the pixels
// that do not have the lightest value. Stays as it is where step is 0.
Image equalize(Image image);

Image invert(Image image);                    // 255 - value
Image posterize(Image image, int bits);       // keeps the highest 0 to 8 bits
Image solarize(Image image, int threshold);   // inverts values from `threshold` up
Image solarize_add(Image image, int amount);  // adds 0 to 255 to values below 128; at most 255

}  // namespace qna::image
