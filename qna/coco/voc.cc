#include "qna/coco/voc.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "qna/base/error.h"
#include "qna/coco/json_records.h"
#include "qna/format/text.h"

namespace qna::coco {
namespace {

namespace fs = std::filesystem;

struct File {
  std::string name;  // without folder and ending
  std::string path;
};

std::vector<File> files_in_folder(const std::string& folder) {
  std::vector<File> files;
  std::error_code error;
  fs::directory_iterator walk(folder, error);
  for (; !error && walk != fs::directory_iterator(); walk.increment(error)) {
    const fs::path& path = walk->path();
    if (path.extension() != ".xml" || path.filename().string().starts_with('.')) continue;
    files.push_back({path.stem().string(), path.string()});
  }
  check(!error, "{}: cannot be read: {}", folder, error.message());
  check(!files.empty(), "{}: there is no .xml file in this folder", folder);
  return files;
}

// The folder Annotations beside the folder ImageSets that the list is in.
fs::path annotations_folder(const std::string& list) {
  for (fs::path above = fs::absolute(list).parent_path(); above.has_relative_path();
       above = above.parent_path()) {
    if (above.filename() == "ImageSets") return above.parent_path() / "Annotations";
  }
  fail("{}: a list of VOC files must be in a folder ImageSets, beside which Annotations lies",
       list);
}

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t first = line.find_first_not_of(kSpace);
  if (first == line.npos) return "";
  return line.substr(first, line.find_last_not_of(kSpace) - first + 1);
}

std::vector<File> files_of_list(const std::string& list) {
  const fs::path folder = annotations_folder(list);
  const auto file = format::MappedFile::open(list);
  const std::string_view text = text_of(*file);
  std::vector<File> files;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view name = trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (name.empty()) continue;
    // A name leads nowhere else, and the lists of one class, with a number behind, are no lists.
    constexpr std::string_view kForbidden("/ \t\0", 4);
    check(name.size() <= 255 && name != ".." && name.find_first_of(kForbidden) == name.npos,
          "{}: line {} must be the name of a file without folder and ending, got {}", list, number,
          format::in_quotes(name));
    files.push_back({std::string(name), (folder / (std::string(name) + ".xml")).string()});
  }
  check(!files.empty(), "{}: the list is empty", list);
  return files;
}

VocImage read_image(const File& file) {
  const auto mapped = format::MappedFile::open(file.path);
  VocImage image = parse_voc(text_of(*mapped), file.path);
  if (image.file_name.empty()) image.file_name = file.name + ".jpg";
  return image;
}

std::vector<std::string> names_in(const std::vector<VocImage>& images) {
  std::set<std::string> names;
  for (const VocImage& image : images)
    for (const VocObject& object : image.objects) names.insert(object.category);
  return {names.begin(), names.end()};
}

Annotation to_annotation(const VocObject& object, int64_t image, int64_t category, size_t place) {
  return {.id = static_cast<int64_t>(place) + 1,
          .image = image,
          .category = category,
          .box = object.box,
          .area = object.box.area(),
          .crowd = false,
          .ignore = object.difficult};
}

}  // namespace

Voc read_voc(const std::string& path, const std::vector<std::string>& class_names) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  std::vector<File> files = is_folder ? files_in_folder(path) : files_of_list(path);
  std::ranges::sort(files, {}, &File::name);
  const auto twice = std::ranges::adjacent_find(files, {}, &File::name);
  if (twice != files.end()) {
    fail("{}: the name {} comes twice", path, format::in_quotes(twice->name));
  }
  std::vector<VocImage> images;
  for (const File& file : files) images.push_back(read_image(file));

  const std::vector<std::string> names = class_names.empty() ? names_in(images) : class_names;
  std::map<std::string_view, int64_t> place_of;
  Voc all;
  for (const std::string& name : names) {
    const int64_t place = static_cast<int64_t>(place_of.size());
    if (!place_of.emplace(name, place).second) {
      fail("{}: class_names must differ, got {} twice", path, format::in_quotes(name));
    }
    all.annotations.categories.push_back({.id = place + 1, .name = name});
  }
  for (size_t i = 0; i < images.size(); ++i) {
    VocImage& image = images[i];
    const int64_t place = static_cast<int64_t>(i);
    all.annotations.images.push_back({.id = place + 1,
                                      .file_name = std::move(image.file_name),
                                      .width = image.width,
                                      .height = image.height});
    std::ranges::move(image.points, std::back_inserter(all.points));
    for (const VocObject& object : image.objects) {
      const auto found = place_of.find(object.category);
      if (found == place_of.end()) {
        fail("{}: object[{}]: name must be one of the {} class_names, got {}", files[i].path,
             object.index, names.size(), format::in_quotes(object.category));
      }
      all.annotations.annotations.push_back(
          to_annotation(object, place, found->second, all.annotations.annotations.size()));
    }
  }
  return all;
}

}  // namespace qna::coco
