#include "qna/data/idx_dataset.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <span>

#include "qna/base/error.h"
#include "qna/data/class_folders.h"
#include "qna/image/color.h"

namespace qna::data {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 33;
// Of images that are all kept in memory; those of the MNIST family have 28.
constexpr int64_t kMaxIdxSide = 1 << 13;
// A byte of deflate's stream gives at most 1032: 258 bytes for a match of 2 bits.
constexpr int64_t kMaxRatio = 1032;

// Reads gzip and, because zlib does, plain files.
class IdxFile {
 public:
  explicit IdxFile(const std::string& path) : path_(path), file_(nullptr, gzclose) {
    std::error_code error;
    // A pipe could block for ever, and its size cannot be checked.
    check(std::filesystem::exists(path, error), "{}: there is no such file", path);
    check(std::filesystem::is_regular_file(path, error), "{}: this is not a regular file", path);
    file_bytes_ = static_cast<int64_t>(std::filesystem::file_size(path, error));
    check(!error, "cannot read {}: {}", path, error.message());
    file_.reset(gzopen(path.c_str(), "rbe"));
    check(file_ != nullptr, "cannot read {}", path);
    gzbuffer(file_.get(), 1 << 17);
  }

  int64_t read_number() {
    std::array<uint8_t, 4> b;
    read(b);
    return int64_t{b[0]} << 24 | b[1] << 16 | b[2] << 8 | b[3];
  }

  // All that is left of the file, which must be `count` bytes.
  std::vector<uint8_t> read_rest(int64_t count) {
    check(count <= kMaxBytes, "{}: there must be at most {} bytes of data, its header claims {}",
          path_, kMaxBytes, count);
    check(count / kMaxRatio <= file_bytes_,
          "{}: the header claims {} bytes of data, more than a file of {} bytes can hold", path_,
          count, file_bytes_);
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    read(bytes);
    // This read is also what makes zlib look at the checksum behind the data.
    uint8_t extra;
    const int more = gzread(file_.get(), &extra, 1);
    check_state();
    check(more == 0, "{}: there is data behind the {} bytes that its header claims", path_, count);
    return bytes;
  }

 private:
  void read(std::span<uint8_t> out) {
    size_t done = 0;
    while (done < out.size()) {
      const size_t part = std::min<size_t>(out.size() - done, 1 << 30);  // gzread's count is an int
      const int count = gzread(file_.get(), out.data() + done, static_cast<unsigned>(part));
      check_state();
      check(count > 0, "{}: the file is cut off: {} bytes are missing", path_, out.size() - done);
      done += static_cast<size_t>(count);
    }
  }

  void check_state() {
    int state = Z_OK;
    const char* message = gzerror(file_.get(), &state);
    check(state != Z_BUF_ERROR, "{}: the file is cut off inside its gzip stream", path_);
    check(state == Z_OK || state == Z_STREAM_END, "{}: cannot be unpacked: {}", path_, message);
  }

  const std::string path_;
  int64_t file_bytes_ = 0;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};

void check_magic(IdxFile& file, int64_t expected, const char* what, const std::string& path) {
  const int64_t magic = file.read_number();
  check(magic == expected, "{}: a file of {} must begin with the bytes {:08x}, got {:08x}", path,
        what, expected, magic);
}

std::vector<uint8_t> read_labels(const std::string& path, int64_t count) {
  IdxFile file(path);
  check_magic(file, 0x801, "labels (idx1-ubyte)", path);
  const int64_t claimed = file.read_number();
  check(claimed == count, "{}: wrong label count: there are {} pictures and {} labels", path, count,
        claimed);
  return file.read_rest(claimed);
}

}  // namespace

IdxDataset::IdxDataset(std::string images, const std::string& labels,
                       std::vector<std::string> class_names)
    : path_(std::move(images)), classes_(std::move(class_names)) {
  IdxFile file(path_);
  check_magic(file, 0x803, "pictures (idx3-ubyte)", path_);
  const int64_t count = file.read_number();
  height_ = file.read_number();
  width_ = file.read_number();
  check(count >= 1, "{}: there are no pictures in it", path_);
  check(height_ >= 1 && height_ <= kMaxIdxSide && width_ >= 1 && width_ <= kMaxIdxSide,
        "{}: the sides of a picture must be in [1, {}], got height {} and width {}", path_,
        kMaxIdxSide, height_, width_);
  pixels_ = file.read_rest(count * height_ * width_);  // below 2^58
  labels_ = read_labels(labels, count);

  const size_t used = size_t{*std::max_element(labels_.begin(), labels_.end())} + 1;
  if (classes_.empty()) {
    for (size_t i = 0; i < used; ++i) classes_.push_back(std::to_string(i));
  }
  check_class_names(classes_, labels);
  check(used <= classes_.size(), "{}: there are {} class_names, but a label is {}", labels,
        classes_.size(), used - 1);
}

void IdxDataset::check_index(int64_t index) const {
  check(index >= 0 && index < size(), "IdxDataset: index must be in [0, {}), got {}", size(),
        index);
}

int64_t IdxDataset::label(int64_t index) const {
  check_index(index);
  return labels_[index];
}

std::string IdxDataset::name(int64_t index) const {
  check_index(index);
  return fmt::format("{}[{}]", path_, index);
}

image::Image IdxDataset::read(int64_t index, int64_t channels) const {
  check_index(index);
  check(channels == 1 || channels == 3, "{}: channels must be 1 or 3, got {}", name(index),
        channels);
  image::Image grey{height_, width_, 1, {}};
  const auto first = pixels_.begin() + index * height_ * width_;
  grey.pixels.assign(first, first + height_ * width_);
  return image::to_channels(std::move(grey), channels);
}

const std::vector<std::string>& fashion_mnist_classes() {
  static const std::vector<std::string> names = {"T-shirt/top", "Trouser",   "Pullover", "Dress",
                                                 "Coat",        "Sandal",    "Shirt",    "Sneaker",
                                                 "Bag",         "Ankle boot"};
  return names;
}

}  // namespace qna::data
