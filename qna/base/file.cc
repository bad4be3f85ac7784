#include "qna/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "qna/base/error.h"
#include "qna/base/text.h"

namespace qna {
namespace {

constexpr const char* kUnfinished = ".part";

std::string temporary_name(const std::string& path) {
  static std::atomic<int> serial{0};  // two threads may write the same path
  return fmt::format("{}.{}.{}{}", path, ::getpid(), serial++, kUnfinished);
}

// Whether temporary_name() makes names like this one.
bool is_temporary_name(std::string_view name) {
  const auto ends_with_number = [&name] {
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos || dot + 1 == name.size()) return false;
    const std::string_view number = name.substr(dot + 1);
    name.remove_suffix(number.size() + 1);
    return std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (!name.ends_with(kUnfinished)) return false;
  name.remove_suffix(std::strlen(kUnfinished));
  return ends_with_number() && ends_with_number() && !name.empty();
}

// Throws what errno says of the step that just failed.
void check_step(bool good, const char* step, const std::string& path) {
  if (!good) fail("cannot {} {}: {}", step, path, std::strerror(errno));
}

}  // namespace

std::string read_file(const std::string& path) {
  std::error_code error;  // a folder would open, and seem empty
  check(!std::filesystem::is_directory(path, error), "cannot read {}: it is a folder", path);
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) {
    const std::string why = std::strerror(errno);
    fail("cannot read {}: {}{}", path, why, did_you_mean_file(path));
  }
  std::string content(std::istreambuf_iterator<char>(file), {});
  check(!file.bad(), "cannot read {}", path);
  return content;
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)),
      temporary_(temporary_name(path_)),
      file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  check_step(file_ >= 0, "write", path_);
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ::close(file_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_, bytes.data(), bytes.size());
    check_step(count > 0 || (count < 0 && errno == EINTR), "write", path_);
    if (count > 0) bytes.remove_prefix(static_cast<size_t>(count));
  }
}

void AtomicFile::commit() {
  check_step(::fsync(file_) == 0, "flush", path_);
  // Whatever close() says, the descriptor is gone.
  check_step(::close(std::exchange(file_, -1)) == 0, "close", path_);
  check_step(std::rename(temporary_.c_str(), path_.c_str()) == 0, "rename", path_);
  committed_ = true;
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void check_writable(const std::string& path) { const AtomicFile attempt(path); }

void remove_leftovers(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;  // a folder that cannot be read shows when it is written to
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (is_temporary_name(entry.path().filename().string())) fs::remove(entry.path(), error);
  }
}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

bool FolderLock::take(const std::string& folder) {
  if (file_ < 0) file_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return file_ < 0 || ::flock(file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

std::string did_you_mean_file(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr size_t kMost = 10000;  // names to compare with
  const fs::path wanted(path);
  const fs::path folder = wanted.has_parent_path() ? wanted.parent_path() : fs::path(".");
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator walk(folder, error);
  for (; !error && walk != fs::directory_iterator() && names.size() < kMost; walk.increment(error))
    names.push_back(walk->path().filename().string());
  std::sort(names.begin(), names.end());  // the same answer whatever the order on disk
  const std::string name = nearest(wanted.filename().string(), names);
  if (name.empty()) return "";
  return fmt::format("; did you mean '{}'?", (wanted.parent_path() / name).string());
}

}  // namespace qna
