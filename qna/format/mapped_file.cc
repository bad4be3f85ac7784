#include "qna/format/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "qna/base/error.h"
#include "qna/base/file.h"

namespace qna::format {
namespace {

struct Descriptor {
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  const int number;
};

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe waits for its other end.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) {
    const int reason = errno;
    fail("cannot read {}: {}{}", path, std::strerror(reason),
         reason == ENOENT ? did_you_mean_file(path) : "");
  }
  struct stat status;
  check(::fstat(file.number, &status) == 0, "cannot read {}: {}", path, std::strerror(errno));
  check(S_ISREG(status.st_mode), "cannot read {}: it is not a regular file", path);

  const auto size = static_cast<size_t>(status.st_size);
  void* start = nullptr;
  if (size > 0) {  // an empty mapping is an error of mmap
    start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
    check(start != MAP_FAILED, "cannot map {}: {}", path, std::strerror(errno));
  }
  return std::shared_ptr<const MappedFile>(
      new MappedFile({static_cast<const std::byte*>(start), size}));
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace qna::format
