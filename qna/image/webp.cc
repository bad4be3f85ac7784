#include <webp/decode.h>

#include <cstring>

#include "qna/base/error.h"
#include "qna/image/decode.h"
#include "qna/image/orientation.h"

namespace qna::image {
namespace {

// The EXIF chunk of a RIFF file, without the "Exif\0\0" that some put before it; empty: none.
std::span<const uint8_t> exif_of(std::span<const uint8_t> bytes) {
  constexpr size_t kFileHeader = 12, kChunkHeader = 8;
  for (size_t at = kFileHeader; at + kChunkHeader <= bytes.size();) {
    const uint8_t* head = bytes.data() + at;
    const size_t size = head[4] | head[5] << 8 | head[6] << 16 | static_cast<size_t>(head[7]) << 24;
    at += kChunkHeader;
    if (size > bytes.size() - at) break;
    if (std::memcmp(head, "EXIF", 4) == 0) {
      const std::span<const uint8_t> exif = bytes.subspan(at, size);
      const bool marked = size >= 6 && std::memcmp(exif.data(), "Exif\0\0", 6) == 0;
      return marked ? exif.subspan(6) : exif;
    }
    at += size + size % 2;
  }
  return {};
}

}  // namespace

Header webp_header(std::span<const uint8_t> bytes, const std::string& name) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(bytes.data(), bytes.size(), &features);
  check(status == VP8_STATUS_OK, "{}: the WebP file is {}", name,
        status == VP8_STATUS_NOT_ENOUGH_DATA ? "cut off" : "damaged");
  check(features.has_animation == 0, "{}: this WebP file moves; only single pictures can be read",
        name);
  const std::span<const uint8_t> exif = exif_of(bytes);
  return {features.height, features.width, exif.empty() ? 1 : exif_orientation(exif)};
}

Decoded decode_webp(std::span<const uint8_t> bytes, const std::string& name,
                    const ReadOptions& options) {
  const Header header = webp_header(bytes, name);
  check_size(header.height, header.width, name, options);
  Decoded decoded;
  decoded.orientation = header.orientation;
  decoded.image = make_image(header.height, header.width, 3);
  Image& image = decoded.image;
  check(WebPDecodeRGBInto(bytes.data(), bytes.size(), image.pixels.data(), image.pixels.size(),
                          static_cast<int>(image.row_bytes())) != nullptr,
        "{}: the WebP file is cut off or damaged", name);
  return decoded;
}

}  // namespace qna::image
