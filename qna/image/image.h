// An image in memory.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace qna::image {

// Rows from top to bottom, pixels from left to right, the channels of a pixel side by side:
// pixels[(y * width + x) * channels + c]. One channel is grey, three are red, green, blue.
struct Image {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<uint8_t> pixels;

  int64_t row_bytes() const { return width * channels; }
  const uint8_t* row(int64_t y) const { return pixels.data() + y * row_bytes(); }
  uint8_t* row(int64_t y) { return pixels.data() + y * row_bytes(); }
};

// A black image.
Image make_image(int64_t height, int64_t width, int64_t channels);

// The largest side of any image, so that sizes in bytes are far from overflow.
inline constexpr int64_t kMaxSide = int64_t{1} << 24;

// Throws qna::Error that begins with `where` unless the sizes are sane and fit the pixels.
void check_image(const Image& image, std::string_view where);

}  // namespace qna::image
