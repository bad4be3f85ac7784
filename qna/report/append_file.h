// A file that only grows, such as a log: every piece is whole or absent, and with the operating
// system at once, so that a killed run loses nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qna::report {

class AppendFile {
 public:
  enum class Open {
    kNew,     // an error if the file is there already
    kAppend,  // after what is there
  };

  AppendFile(std::string path, Open open);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Takes a half-written piece back when it throws qna::Error, as on a full disk.
  void append(std::string_view bytes);

  // Waits for the disk, so that a power cut loses nothing either.
  void sync();

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  int file_;
  int64_t size_ = 0;
};

}  // namespace qna::report
