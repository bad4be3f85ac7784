// A folder that vanishes with everything in it.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace qna::bench {

struct TemporaryFolder {
  TemporaryFolder()
      : path(std::filesystem::temp_directory_path() / fmt::format("qna-bench-{}", getpid())) {
    std::filesystem::create_directories(path);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return (path / name).string(); }

  const std::filesystem::path path;
};

}  // namespace qna::bench
