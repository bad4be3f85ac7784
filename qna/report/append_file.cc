#include "qna/report/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "qna/base/error.h"

namespace qna::report {

AppendFile::AppendFile(std::string path, Open open)
    : path_(std::move(path)),
      file_(::open(path_.c_str(),
                   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (open == Open::kNew ? O_EXCL : 0),
                   0666)) {
  check(file_ >= 0, "cannot write {}: {}", path_, std::strerror(errno));
  size_ = ::lseek(file_, 0, SEEK_END);
}

AppendFile::~AppendFile() { ::close(file_); }

void AppendFile::append(std::string_view bytes) {
  std::string_view left = bytes;
  while (!left.empty()) {
    const ssize_t count = ::write(file_, left.data(), left.size());
    if (count > 0) {
      left.remove_prefix(static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      const int reason = errno;
      const bool mended = size_ >= 0 && ::ftruncate(file_, size_) == 0;
      fail("cannot write {}: {}{}", path_, std::strerror(reason),
           mended ? "" : "; its last piece may be half-written");
    }
  }
  size_ += static_cast<int64_t>(bytes.size());
}

void AppendFile::sync() {
  // EINVAL: not a file on a disk, such as a pipe.
  check(::fdatasync(file_) == 0 || errno == EINVAL, "cannot flush {}: {}", path_,
        std::strerror(errno));
}

}  // namespace qna::report
