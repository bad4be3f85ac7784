// Every value of an image replaced by another one.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "qna/image/image.h"

namespace qna::image {

using Lookup = std::array<uint8_t, 256>;

// value -> table[value]. `of` is a function of the value, from 0 to 255.
template <typename Of>
Lookup make_lookup(Of&& of) {
  Lookup table;
  for (int value = 0; value < 256; ++value) table[value] = static_cast<uint8_t>(of(value));
  return table;
}

// The same table for all channels.
inline Image look_up(Image image, const Lookup& table) {
  for (uint8_t& pixel : image.pixels) pixel = table[pixel];
  return image;
}

// One table per channel.
inline Image look_up(Image image, std::span<const Lookup> tables) {
  if (image.channels == 1) return look_up(std::move(image), tables[0]);
  uint8_t* pixel = image.pixels.data();
  for (int64_t i = image.height * image.width; i > 0; --i, pixel += 3) {
    pixel[0] = tables[0][pixel[0]];
    pixel[1] = tables[1][pixel[1]];
    pixel[2] = tables[2][pixel[2]];
  }
  return image;
}

}  // namespace qna::image
