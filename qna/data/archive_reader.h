// The files of a tar archive, one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

struct archive;

namespace qna::data {

// Sizes, names and data are hostile until checked. Errors name the archive.
class ArchiveReader {
 public:
  struct Member {
    enum class Kind { kFile, kFolder, kLink, kOther };
    std::string name;  // parts with one / between them: no "./", no / at the ends
    Kind kind;
  };

  explicit ArchiveReader(std::string path);

  // Nothing behind the last.
  std::optional<Member> next();
  // The content of the file that next() gave, at most `max_bytes`.
  std::vector<uint8_t> read(int64_t max_bytes);

 private:
  [[noreturn]] void stop(const char* what) const;

  const std::string path_;
  std::string name_;  // of the member
  int64_t claimed_ = 0;
  std::unique_ptr<archive, int (*)(archive*)> archive_;
};

}  // namespace qna::data
