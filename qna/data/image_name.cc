#include "qna/data/image_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace qna::data {
namespace {

// ".jpg" of "a/B.JPG"
std::string ending_of(std::string_view name) {
  std::string ending = std::filesystem::path(name).extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending;
}

struct Format {
  const char* ending;
  const char* name;
};
constexpr Format kUnreadable[] = {{".gif", "GIF"},   {".tif", "TIFF"},    {".tiff", "TIFF"},
                                  {".bmp", "BMP"},   {".heic", "HEIC"},   {".heif", "HEIC"},
                                  {".avif", "AVIF"}, {".jxl", "JPEG XL"}, {".svg", "SVG"}};

}  // namespace

bool has_image_ending(std::string_view name) {
  const std::string ending = ending_of(name);
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png" || ending == ".webp";
}

void LeftOut::add(const std::string& path) {
  if (is_hidden(std::filesystem::path(path).filename().string())) return;
  const std::string ending = ending_of(path);
  const auto* format = std::find_if(std::begin(kUnreadable), std::end(kUnreadable),
                                    [&](const Format& each) { return ending == each.ending; });
  Kind& kind = format == std::end(kUnreadable) ? others_ : pictures_[format->name];
  if (kind.count++ == 0 || path < kind.example) kind.example = path;
}

std::string LeftOut::line() const {
  int64_t total = others_.count;
  std::string pictures;
  for (const auto& [name, kind] : pictures_) {
    pictures += fmt::format("{}{} {}", pictures.empty() ? "" : ", ", kind.count, name);
    total += kind.count;
  }
  if (total == 0) return "";
  std::string line = fmt::format("{} file{} left out: ", total, total == 1 ? " is" : "s are");
  if (!pictures.empty()) {
    line += fmt::format("{}, which cannot be read, such as {}", pictures,
                        pictures_.begin()->second.example);
  }
  if (others_.count == 0) return line;
  return line + fmt::format("{}{} of other kinds, such as {}", pictures.empty() ? "" : "; and ",
                            others_.count, others_.example);
}

}  // namespace qna::data
