#include "qna/image/orientation.h"

#include <algorithm>

namespace qna::image {
namespace {

// Integers at any offset of a hostile TIFF file; beyond its end they are 0.
class TiffReader {
 public:
  explicit TiffReader(std::span<const uint8_t> bytes)
      : bytes_(bytes), little_(byte(0) == 'I' && byte(1) == 'I') {}

  bool has_magic() const {
    return (little_ || (byte(0) == 'M' && byte(1) == 'M')) && number(2, 2) == 42;
  }

  // The offset is 64 bits wide: sums of 32-bit numbers from the file cannot wrap.
  uint32_t number(uint64_t offset, int size) const {
    uint32_t value = 0;
    for (int i = 0; i < size; ++i) {
      value = value << 8 | byte(offset + (little_ ? size - 1 - i : i));
    }
    return value;
  }

 private:
  uint32_t byte(uint64_t offset) const { return offset < bytes_.size() ? bytes_[offset] : 0; }

  std::span<const uint8_t> bytes_;
  bool little_;
};

// The step between pixels is in bytes.
template <int channels>
void copy_pixels(uint8_t* to, const uint8_t* from, int64_t count, int64_t step) {
  for (int64_t x = 0; x < count; ++x) {
    std::copy_n(from + x * step, channels, to + x * channels);
  }
}

}  // namespace

int exif_orientation(std::span<const uint8_t> tiff) {
  constexpr uint32_t kOrientationTag = 0x0112;
  constexpr uint32_t kShort = 3;  // the TIFF type of 16-bit numbers
  const TiffReader reader(tiff);
  if (!reader.has_magic()) return 1;
  // The first directory: a count, then entries of tag, type, count and value, 12 bytes each.
  const uint64_t directory = reader.number(4, 4);
  const uint32_t entries = reader.number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const uint64_t entry = directory + 2 + 12 * i;
    if (reader.number(entry, 2) != kOrientationTag) continue;
    const bool is_one_short =
        reader.number(entry + 2, 2) == kShort && reader.number(entry + 4, 4) == 1;
    const uint32_t value = reader.number(entry + 8, 2);
    return is_one_short && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image turn_upright(Image image, int orientation) {
  if (orientation == 1) return image;
  const int64_t h = image.height;
  const int64_t w = image.width;
  const bool transposed = orientation >= 5;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  // In pixels of the file: where the upright image begins, and what its axes are there.
  const int64_t start = (from_right ? w - 1 : 0) + (from_bottom ? (h - 1) * w : 0);
  int64_t step_x = from_right ? -1 : 1;
  int64_t step_y = from_bottom ? -w : w;
  if (transposed) std::swap(step_x, step_y);

  Image out = make_image(transposed ? w : h, transposed ? h : w, image.channels);
  const auto copy = image.channels == 1 ? &copy_pixels<1> : &copy_pixels<3>;
  for (int64_t y = 0; y < out.height; ++y) {
    copy(out.row(y), image.pixels.data() + (start + y * step_y) * image.channels, out.width,
         step_x * image.channels);
  }
  return out;
}

}  // namespace qna::image
