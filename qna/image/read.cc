#include "qna/image/read.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "qna/base/error.h"
#include "qna/image/color.h"
#include "qna/image/decode.h"
#include "qna/image/orientation.h"

namespace qna::image {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

constexpr uint8_t kJpegMagic[] = {0xff, 0xd8, 0xff};
constexpr uint8_t kPngMagic[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

// Bytes 0 to 3 and 8 to 11; between them is the length.
bool is_webp(std::span<const uint8_t> bytes) {
  return bytes.size() >= 12 && std::memcmp(bytes.data(), "RIFF", 4) == 0 &&
         std::memcmp(bytes.data() + 8, "WEBP", 4) == 0;
}

// The name of a format that people have pictures in, but that is not read; empty: none of them.
std::string other_format(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("GIF8")) return "GIF";
  if (text.starts_with(std::string_view("II*\0", 4)) ||
      text.starts_with(std::string_view("MM\0*", 4))) {
    return "TIFF";
  }
  if (text.starts_with("BM")) return "BMP";
  if (text.size() < 12 || text.substr(4, 4) != "ftyp") return "";
  const std::string_view brand = text.substr(8, 4);
  if (brand == "avif" || brand == "avis") return "AVIF";
  for (const char* heic : {"heic", "heix", "heim", "heis", "hevc", "mif1", "msf1"}) {
    if (brand == heic) return "HEIC";
  }
  return "";
}

bool starts_with(std::span<const uint8_t> bytes, std::span<const uint8_t> magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

// "ff d8 ff e0 ...": the first bytes, for a message.
std::string first_bytes(std::span<const uint8_t> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes.first(std::min<size_t>(bytes.size(), 8)), " "));
}

void check_options(const ReadOptions& options, const std::string& name) {
  check(options.channels == 1 || options.channels == 3, "{}: channels must be 1 or 3, got {}", name,
        options.channels);
  check(options.min_side >= 0, "{}: min_side must be at least 0, got {}", name, options.min_side);
  check(options.max_pixels >= 1, "{}: max_pixels must be at least 1, got {}", name,
        options.max_pixels);
}

struct File {
  explicit File(const std::string& path)
      // O_NONBLOCK: opening a pipe that nobody writes to must not wait for ever.
      : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    check(descriptor >= 0, "cannot read {}: {}", path, std::strerror(errno));
  }
  ~File() { ::close(descriptor); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int descriptor;
};

std::vector<uint8_t> read_bytes(const std::string& path) {
  const File file(path);
  struct stat status;
  check(::fstat(file.descriptor, &status) == 0, "cannot read {}: {}", path, std::strerror(errno));
  check(!S_ISDIR(status.st_mode), "cannot read {}: it is a folder", path);
  check(S_ISREG(status.st_mode), "cannot read {}: it is not a regular file", path);
  check(status.st_size <= kMaxFileBytes,
        "cannot read {}: a file must have at most {} bytes, this one has {}", path, kMaxFileBytes,
        status.st_size);
  std::vector<uint8_t> bytes(static_cast<size_t>(status.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(file.descriptor, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    check(count >= 0, "cannot read {}: {}", path, std::strerror(errno));
    if (count == 0) break;  // it became shorter meanwhile: the decoder will say so
    done += static_cast<size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

void check_size(int64_t height, int64_t width, const std::string& name,
                const ReadOptions& options) {
  check(height >= 1 && width >= 1 && height <= kMaxSide && width <= kMaxSide,
        "{}: the sides of a picture must be in [1, {}], got {} x {} (width x height)", name,
        kMaxSide, width, height);
  check(height * width <= options.max_pixels,
        "{}: a picture must have at most {} pixels, got {} x {} (width x height)", name,
        options.max_pixels, width, height);
}

namespace {

struct Format {
  decltype(&decode_jpeg) decode;
  decltype(&jpeg_header) header;
};

Format format_of(std::span<const uint8_t> bytes, const std::string& name) {
  check(!bytes.empty(), "{}: the file is empty", name);
  if (starts_with(bytes, kJpegMagic)) return {&decode_jpeg, &jpeg_header};
  if (starts_with(bytes, kPngMagic)) return {&decode_png, &png_header};
  if (is_webp(bytes)) return {&decode_webp, &webp_header};
  const std::string other = other_format(bytes);
  check(other.empty(),
        "{}: this is a picture in the format {}, only JPEG, PNG and WebP files can be read", name,
        other);
  fail("{}: only JPEG, PNG and WebP files can be read, this one begins with the bytes {}", name,
       first_bytes(bytes));
}

}  // namespace

Image decode_image(std::span<const uint8_t> bytes, const std::string& name,
                   const ReadOptions& options) {
  check_options(options, name);
  Decoded decoded = format_of(bytes, name).decode(bytes, name, options);
  Image image = to_channels(std::move(decoded.image), options.channels);
  return turn_upright(std::move(image), decoded.orientation);
}

std::array<int64_t, 2> decode_image_size(std::span<const uint8_t> bytes, const std::string& name) {
  const Header header = format_of(bytes, name).header(bytes, name);
  const bool lies = header.orientation >= 5;  // height and width are exchanged
  return {lies ? header.width : header.height, lies ? header.height : header.width};
}

std::array<int64_t, 2> read_image_size(const std::string& path) {
  return decode_image_size(read_bytes(path), path);
}

Image read_image(const std::string& path, const ReadOptions& options) {
  return decode_image(read_bytes(path), path, options);
}

}  // namespace qna::image
