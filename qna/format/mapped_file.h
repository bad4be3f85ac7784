// A file as read-only memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace qna::format {

// The file must not be cut while it is mapped: the system ends a program that reads pages which
// are gone. Replacing it by renaming, as qna::AtomicFile does, is safe.
class MappedFile {
 public:
  // Shared, because what points into the bytes has to keep them.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  const std::span<const std::byte> bytes_;
};

}  // namespace qna::format
