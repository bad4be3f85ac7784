#include "qna/finetune/find_boxes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "qna/base/error.h"
#include "qna/coco/annotations.h"
#include "qna/coco/yolo.h"
#include "qna/format/mapped_file.h"

namespace qna::finetune {
namespace {

namespace fs = std::filesystem;

// What people call the pictures that are not for training, the best guess first.
constexpr const char* kValNames[] = {"val", "valid", "validation", "test"};

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_regular(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::vector<fs::path> files_with_ending(const fs::path& folder, const char* ending) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::directory_iterator walk(folder, error);
  for (; !error && walk != fs::directory_iterator(); walk.increment(error)) {
    const fs::path& path = walk->path();
    if (path.extension() == ending && is_regular(path)) found.push_back(path);
  }
  std::ranges::sort(found);
  return found;
}

// ---- COCO ----

// By its keys: a folder of pictures may have other JSON files.
bool looks_like_coco(const fs::path& path) {
  const auto file = format::MappedFile::open(path.string());
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()),
                              file->bytes().size());
  for (const char* key : {"\"images\"", "\"annotations\"", "\"categories\""}) {
    if (text.find(key) == text.npos) return false;
  }
  return true;
}

std::vector<fs::path> coco_files(const fs::path& root) {
  std::vector<fs::path> found;
  std::vector<fs::path> folders = {root, root / "annotations", root / "train"};
  for (const char* name : kValNames) folders.push_back(root / name);
  for (const fs::path& folder : folders) {
    for (const fs::path& path : files_with_ending(folder, ".json")) {
      if (looks_like_coco(path)) found.push_back(path);
    }
  }
  // COCO itself has captions and keypoints of the same pictures beside the boxes.
  const auto is_instances = [](const fs::path& path) {
    return path.stem().string().starts_with("instances");
  };
  if (std::ranges::any_of(found, is_instances)) {
    std::erase_if(found, [&](const fs::path& path) { return !is_instances(path); });
  }
  return found;
}

// The file whose name, or whose folder's, has this word.
std::optional<fs::path> file_of_split(const std::vector<fs::path>& files, const fs::path& root,
                                      const std::string& split) {
  for (const fs::path& path : files) {
    if (path.lexically_relative(root).string().find(split) != std::string::npos) return path;
  }
  return std::nullopt;
}

// The folder that the file's names are relative to: where its first picture is.
BoxPlace coco_place(const fs::path& root, const fs::path& file) {
  const coco::Annotations truth = coco::read_annotations(file.string());
  check(!truth.images.empty(), "{}: there are no pictures in it", file.string());
  const std::string stem = file.stem().string();
  std::vector<fs::path> folders = {file.parent_path(), root / "images"};
  for (const char* split : {"train", "val", "valid", "validation", "test"}) {
    const size_t place = stem.find(split);
    if (place == std::string::npos) continue;
    for (const std::string& name : {stem.substr(place), std::string(split)}) {
      folders.push_back(root / name);
      folders.push_back(root / "images" / name);
    }
  }
  folders.push_back(root);
  for (const fs::path& folder : folders) {
    const auto is_there = [&](const coco::Image& image) {
      return !image.file_name.empty() && is_regular(folder / image.file_name);
    };
    if (std::ranges::any_of(truth.images, is_there)) return {folder.string(), file.string()};
  }
  std::vector<std::string> looked;
  for (const fs::path& folder : folders) looked.push_back(folder.string());
  fail("{}: its pictures, such as {}, are in none of the folders {}", file.string(),
       truth.images.front().file_name, fmt::join(looked, ", "));
}

std::optional<BoxPlaces> find_coco(const fs::path& root) {
  const std::vector<fs::path> files = coco_files(root);
  if (files.empty()) return std::nullopt;
  const std::optional<fs::path> train = file_of_split(files, root, "train");
  std::vector<std::string> names;
  for (const fs::path& path : files) names.push_back(path.lexically_relative(root).string());
  check(train.has_value() || files.size() == 1,
        "{}: there are {} files of boxes, but none is called 'train': {}; name them, such as "
        "instances_train.json and instances_val.json",
        root.string(), files.size(), fmt::join(names, ", "));
  BoxPlaces places{.layout = "COCO's JSON", .train = coco_place(root, train.value_or(files[0]))};
  for (const char* name : kValNames) {
    const std::optional<fs::path> val = file_of_split(files, root, name);
    if (!val.has_value() || val == train || files.size() == 1) continue;
    places.val = coco_place(root, *val);
    break;
  }
  return places;
}

// ---- YOLO ----

std::optional<BoxPlace> yolo_place(const fs::path& images, const fs::path& labels) {
  if (!is_folder(images) || !coco::is_yolo_folder(labels.string())) return std::nullopt;
  return BoxPlace{images.string(), labels.string()};
}

// The pictures of one split below the root, as data.yaml calls it or as folders are usually named.
std::optional<BoxPlace> yolo_split(const fs::path& root, const std::string& split,
                                   const std::string& written) {
  const std::optional<std::string> said =
      written.empty() ? std::nullopt : coco::find_yolo_images(root.string(), written);
  if (said.has_value()) {
    const fs::path images = (root / *said).lexically_normal();
    if (auto place = yolo_place(images, coco::yolo_labels_of(images.string()))) return place;
  }
  if (auto place = yolo_place(root / "images" / split, root / "labels" / split)) return place;
  return yolo_place(root / split / "images", root / split / "labels");
}

std::optional<BoxPlaces> find_yolo(const fs::path& root) {
  const fs::path file = root / "data.yaml";
  const coco::YoloDescription said =
      is_regular(file) ? coco::read_yolo_description(file.string()) : coco::YoloDescription{};
  std::optional<BoxPlace> train = yolo_split(root, "train", said.train);
  if (!train.has_value()) train = yolo_place(root / "images", root / "labels");
  if (!train.has_value() && (is_regular(root / "classes.txt") || is_regular(file))) {
    train = yolo_place(root, root);  // labels beside the pictures
  }
  check(train.has_value() || !is_regular(file),
        "{}: there is no folder of pictures with labels for its 'train'; the pictures lie in a "
        "folder images, and the labels in a folder labels in its place",
        file.string());
  if (!train.has_value()) return std::nullopt;
  BoxPlaces places{.layout = "YOLO's labels", .train = *train};
  for (const char* name : kValNames) {
    places.val = yolo_split(root, name, name == kValNames[0] ? said.val : "");
    if (places.val.has_value()) break;
  }
  // Some descriptions name the same pictures twice, for lack of others.
  if (places.val.has_value() && places.val->images == train->images) places.val = std::nullopt;
  return places;
}

// ---- VOC ----

bool has_xml(const fs::path& folder) { return !files_with_ending(folder, ".xml").empty(); }

std::optional<fs::path> first_folder(const fs::path& root, std::vector<const char*> names) {
  for (const char* name : names) {
    if (is_folder(root / name)) return root / name;
  }
  return std::nullopt;
}

std::optional<fs::path> first_list(const fs::path& root, std::vector<const char*> names) {
  for (const char* name : names) {
    const fs::path list = root / "ImageSets" / "Main" / name;
    if (is_regular(list)) return list;
  }
  return std::nullopt;
}

std::optional<BoxPlaces> find_voc(const fs::path& root) {
  BoxPlaces places{.layout = "VOC's XML", .train = {}};
  // Pictures and XML files side by side, in a folder for each split.
  if (has_xml(root / "train")) {
    places.train = {(root / "train").string(), (root / "train").string()};
    for (const char* name : kValNames) {
      const std::string folder = (root / name).string();
      if (!has_xml(folder)) continue;
      places.val = BoxPlace{folder, folder};
      break;
    }
    return places;
  }
  for (const char* name : {"Annotations", "annotations", "."}) {
    const fs::path folder = (root / name).lexically_normal();
    if (!has_xml(folder)) continue;
    const auto images = first_folder(root, {"JPEGImages", "images", "Images"});
    places.train = {images.value_or(root).string(), folder.string()};
    // Lists name files of the folder Annotations.
    const auto train = first_list(root, {"train.txt", "trainval.txt"});
    const auto val = first_list(root, {"val.txt", "test.txt"});
    if (!train.has_value() || name != std::string_view("Annotations")) return places;
    places.train.annotations = train->string();
    if (val.has_value()) places.val = BoxPlace{places.train.images, val->string()};
    return places;
  }
  return std::nullopt;
}

}  // namespace

std::optional<BoxPlaces> find_boxes(const std::string& root) {
  if (auto places = find_coco(root)) return places;
  if (auto places = find_yolo(root)) return places;
  return find_voc(root);
}

}  // namespace qna::finetune
