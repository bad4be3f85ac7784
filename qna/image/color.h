// Colours as Pillow converts them, to the bit.
#pragma once

#include <cstdint>

#include "qna/image/image.h"

namespace qna::image {

// From grey to red, green, blue or back; the picture itself when it has that many channels already.
Image to_channels(Image image, int64_t channels);

// One row of cyan, magenta, yellow, black to red, green, blue. The inks are inverted, 255 is no
// ink, as Adobe writes them into JPEG files and as all readers expect them there.
void inverted_cmyk_to_rgb(uint8_t* rgb, const uint8_t* cmyk, int64_t pixels);

}  // namespace qna::image
