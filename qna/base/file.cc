#include "qna/base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "qna/base/error.h"

namespace qna {

void write_file(const std::string& path, std::string_view content) {
  static std::atomic<int> serial{0};  // two threads may write the same path
  const std::string temporary = fmt::format("{}.{}.{}.part", path, ::getpid(), serial++);
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  check(file >= 0, "cannot write {}: {}", path, std::strerror(errno));
  const char* step = "write";
  bool good = true;
  for (size_t done = 0; good && done < content.size();) {
    const ssize_t count = ::write(file, content.data() + done, content.size() - done);
    if (count > 0) done += static_cast<size_t>(count);
    good = count > 0 || (count < 0 && errno == EINTR);
  }
  if (good && ::fsync(file) != 0) {
    step = "flush";
    good = false;
  }
  int error = errno;
  if (::close(file) != 0 && good) {
    step = "close";
    good = false;
    error = errno;
  }
  if (good && std::rename(temporary.c_str(), path.c_str()) != 0) {
    step = "rename";
    good = false;
    error = errno;
  }
  if (good) return;
  ::unlink(temporary.c_str());
  fail("cannot {} {}: {}", step, path, std::strerror(error));
}

}  // namespace qna
