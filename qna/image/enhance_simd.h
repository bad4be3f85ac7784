// The loops of enhance.cc that tables cannot do, by Highway's run-time dispatch. No multiply and
// add is contracted into one, so all instruction sets give the same bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "qna/image/image.h"

namespace qna::image {

// plain + factor * (value - plain), rounded down and clipped.
inline uint8_t blend(int plain, int value, float factor) {
  const float mixed = static_cast<float>(plain) + factor * static_cast<float>(value - plain);
  return static_cast<uint8_t>(std::clamp(mixed, 0.0f, 255.0f));
}

// (sum of 3 x 3 values + 4 times the middle) / 13, rounded; a half cannot occur as 13 is odd.
// sum + 6 is at most 13 * 255 + 6, and up to there x * kThirteenth >> 16 is x / 13 rounded down.
inline constexpr int kThirteenth = 65536 / 13 + 1;

// Of an image with 3 channels, in place.
void blend_with_luma(Image& image, float factor);

// All pixels of `out` but those at the edges; both have the same size, of at least 3 x 3.
void blend_with_smooth(Image& out, const Image& image, float factor);

}  // namespace qna::image
