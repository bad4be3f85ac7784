#include "qna/data/archive_reader.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "qna/base/error.h"

namespace qna::data {
namespace {

constexpr size_t kMaxName = 4096;

// "./a//b/" becomes "a/b". Nothing is ever written, so ".." could do no harm, but it has no
// meaning inside an archive.
std::string clean_name(std::string_view name, const std::string& path) {
  check(name.size() <= kMaxName, "{}: a name has {} bytes, at most {} are allowed", path,
        name.size(), kMaxName);
  std::string clean;
  while (!name.empty()) {
    const size_t end = std::min(name.find('/'), name.size());
    const std::string_view part = name.substr(0, end);
    name.remove_prefix(std::min(name.size(), end + 1));
    if (part.empty() || part == ".") continue;
    check(part != "..", "{}: the name of a member must not have '..' in it", path);
    if (!clean.empty()) clean += '/';
    clean += part;
  }
  return clean;
}

}  // namespace

ArchiveReader::ArchiveReader(std::string path)
    : path_(std::move(path)), archive_(archive_read_new(), archive_read_free) {
  check(archive_ != nullptr, "{}: not enough memory to open it", path_);
  std::error_code error;
  check(std::filesystem::exists(path_, error), "{}: there is no such file", path_);
  check(std::filesystem::is_regular_file(path_, error), "{}: this is not a regular file", path_);
  // Named one by one: "all" would start other programs for some kinds of compression.
  archive_read_support_filter_gzip(archive_.get());
  archive_read_support_filter_bzip2(archive_.get());
  archive_read_support_filter_xz(archive_.get());
  archive_read_support_filter_zstd(archive_.get());
  archive_read_support_format_tar(archive_.get());
  if (archive_read_open_filename(archive_.get(), path_.c_str(), 1 << 17) != ARCHIVE_OK) {
    stop("cannot be opened as a tar file");
  }
}

void ArchiveReader::stop(const char* what) const {
  const char* reason = archive_error_string(archive_.get());
  fail("{}{}{}: {}: {}", path_, name_.empty() ? "" : ":", name_, what,
       reason == nullptr ? "unknown reason" : reason);
}

std::optional<ArchiveReader::Member> ArchiveReader::next() {
  name_.clear();
  archive_entry* entry = nullptr;
  const int result = archive_read_next_header(archive_.get(), &entry);
  if (result == ARCHIVE_EOF) return std::nullopt;
  // A warning is about what is of no use here, such as a name in letters that the locale lacks.
  if (result != ARCHIVE_OK && result != ARCHIVE_WARN) stop("cannot be read as a tar file");
  const char* name = archive_entry_pathname(entry);
  if (name == nullptr) name = archive_entry_pathname_utf8(entry);
  check(name != nullptr, "{}: the name of a member cannot be read", path_);
  name_ = clean_name(name, path_);
  claimed_ = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : 0;
  using Kind = Member::Kind;
  const auto type = archive_entry_filetype(entry);
  if (archive_entry_hardlink(entry) != nullptr || type == AE_IFLNK)
    return Member{name_, Kind::kLink};
  if (type == AE_IFDIR) return Member{name_, Kind::kFolder};
  return Member{name_, type == AE_IFREG ? Kind::kFile : Kind::kOther};
}

std::vector<uint8_t> ArchiveReader::read(int64_t max_bytes) {
  const auto check_bytes = [&](int64_t bytes) {
    check(bytes <= max_bytes, "{}:{}: there is room for {} bytes more in memory, this file has {}",
          path_, name_, max_bytes, bytes);
  };
  check_bytes(claimed_);
  std::vector<uint8_t> bytes;
  constexpr size_t kStep = 1 << 16;
  // A claimed size is believed only so far.
  bytes.reserve(std::clamp<int64_t>(claimed_, 0, 1 << 24));
  while (true) {
    const size_t before = bytes.size();
    // Not beyond what was reserved, or the vector would take twice as much.
    const size_t room = bytes.capacity() - before;
    bytes.resize(before + (room == 0 ? kStep : std::min(room, kStep)));
    const la_ssize_t count =
        archive_read_data(archive_.get(), bytes.data() + before, bytes.size() - before);
    if (count < 0) stop("cannot be read");
    bytes.resize(before + static_cast<size_t>(count));
    if (count == 0) break;
    check_bytes(static_cast<int64_t>(bytes.size()));
    if (static_cast<int64_t>(bytes.size()) == claimed_) break;
  }
  return bytes;
}

}  // namespace qna::data
