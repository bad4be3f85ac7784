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

Image decode_image(std::span<const uint8_t> bytes, const std::string& name,
                   const ReadOptions& options) {
  check_options(options, name);
  check(!bytes.empty(), "{}: the file is empty", name);
  const bool is_jpeg = starts_with(bytes, kJpegMagic);
  check(is_jpeg || starts_with(bytes, kPngMagic),
        "{}: only JPEG and PNG files can be read, this one begins with the bytes {}", name,
        first_bytes(bytes));
  Decoded decoded = is_jpeg ? decode_jpeg(bytes, name, options) : decode_png(bytes, name, options);
  Image image = to_channels(std::move(decoded.image), options.channels);
  return turn_upright(std::move(image), decoded.orientation);
}

Image read_image(const std::string& path, const ReadOptions& options) {
  return decode_image(read_bytes(path), path, options);
}

}  // namespace qna::image
