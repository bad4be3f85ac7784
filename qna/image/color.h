// Colours as Pillow converts them, to the bit.
#pragma once

#include <cstdint>

#include "qna/image/image.h"

namespace qna::image {

// 0.299 R + 0.587 G + 0.114 B (ITU-R 601) in units of 2^-16. They add up to 2^16: white is 255.
inline constexpr uint32_t kLumaRed = 19595;
inline constexpr uint32_t kLumaGreen = 38470;
inline constexpr uint32_t kLumaBlue = 7471;

inline uint8_t luma(const uint8_t* rgb) {
  return static_cast<uint8_t>(
      (rgb[0] * kLumaRed + rgb[1] * kLumaGreen + rgb[2] * kLumaBlue + 0x8000u) >> 16);
}

// From grey to red, green, blue or back; the image itself when it has that many channels already.
Image to_channels(Image image, int64_t channels);

// One row of cyan, magenta, yellow, black to red, green, blue. The inks are inverted, 255 is no
// ink, as Adobe writes them into JPEG files and as all readers expect them there.
void inverted_cmyk_to_rgb(uint8_t* rgb, const uint8_t* cmyk, int64_t pixels);

}  // namespace qna::image
