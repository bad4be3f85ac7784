#include "cli/output_folder.h"

#include <fmt/format.h>

#include <filesystem>

#include "qna/base/error.h"

namespace qna::cli {

void make_output_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  check(!error, "--out: {} cannot be made: {}", path, error.message());
}

void check_keeps_images(const std::string& out, const std::vector<std::string>& images) {
  namespace fs = std::filesystem;
  for (const std::string& image : images) {
    const fs::path path = fs::absolute(image);
    std::error_code absent;
    check(path.extension() != ".png" || !fs::equivalent(path.parent_path(), out, absent),
          "--out must be another folder than that of the pictures, or {} would be replaced", image);
  }
}

std::string UniqueStems::of(const std::string& path) {
  const std::string stem = std::filesystem::path(path).stem().string();
  std::string name = stem;
  for (int i = 2; !taken_.insert(name).second; ++i) name = fmt::format("{}-{}", stem, i);
  return name;
}

}  // namespace qna::cli
