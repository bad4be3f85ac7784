#include "qna/data/detection_dataset.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "qna/base/error.h"
#include "qna/coco/voc.h"
#include "qna/coco/yolo.h"
#include "qna/data/class_folders.h"
#include "qna/data/image_name.h"
#include "qna/format/text.h"
#include "qna/image/read.h"

namespace qna::data {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_of(const std::vector<coco::Category>& categories) {
  std::vector<std::string> names;
  for (const coco::Category& category : categories) names.push_back(category.name);
  return names;
}

void check_same_names(const std::vector<std::string>& names, const std::vector<std::string>& wanted,
                      const std::string& file) {
  check(names.size() == wanted.size(), "{}: it must have the {} categories of class_names, got {}",
        file, wanted.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    check(
        names[i] == wanted[i],
        "{}: its categories, in order of their ids, must be those of class_names; the one in place "
        "{} must be {}, got {}",
        file, i, format::in_quotes(wanted[i]), format::in_quotes(names[i]));
  }
}

// Names come from a file that nobody vouches for: none may lead out of the folder.
void check_file_name(const coco::Image& image, const std::string& file) {
  const std::string& name = image.file_name;
  check(!name.empty(), "{}: the picture with the id {}: file_name is missing", file, image.id);
  const fs::path path(name);
  const bool leads_out =
      path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end();
  check(
      !leads_out && name.find('\0') == std::string::npos,
      "{}: the picture with the id {}: file_name must be a path inside the folder of pictures, got "
      "{}",
      file, image.id, format::in_quotes(name));
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_to_be_learned(const coco::Annotation& annotation) {
  return !annotation.crowd && !annotation.ignore;
}

// The place of each of the files' classes among the names that are asked for.
std::vector<int64_t> places_of(const std::vector<std::string>& own,
                               const std::vector<std::string>& wanted, const std::string& where) {
  std::vector<int64_t> places;
  for (const std::string& name : own) {
    const auto found = std::find(wanted.begin(), wanted.end(), name);
    check(found != wanted.end(), "{}: the class {} is not among the {} class_names", where,
          format::in_quotes(name), wanted.size());
    places.push_back(found - wanted.begin());
  }
  return places;
}

// {height, width}; of an image that cannot be read 1 x 1, so that who reads it later tells of it.
std::array<int64_t, 2> size_of(const std::string& path) {
  try {
    return image::read_image_size(path);
  } catch (const Error&) {
    return {1, 1};
  }
}

// YOLO's labels as COCO has them: ids from 1, boxes in pixels.
coco::Annotations read_yolo(const DetectionDatasetOptions& options) {
  const fs::path labels = options.annotations, images = options.images;
  const std::vector<std::string> own = coco::find_yolo_names(options.annotations);
  const std::vector<std::string>& wanted = options.class_names;
  check(!own.empty() || !wanted.empty(),
        "{}: the names of the classes are not known: there must be a classes.txt or data.yaml in "
        "this "
        "folder or above it, or class_names",
        options.annotations);
  check_class_names(own, options.annotations);
  const std::vector<std::string>& names = wanted.empty() ? own : wanted;
  const std::vector<int64_t> places =
      places_of(own.empty() ? wanted : own, names, options.annotations);
  coco::Annotations truth;
  for (const std::string& name : names) {
    truth.categories.push_back(
        {.id = static_cast<int64_t>(truth.categories.size()) + 1, .name = name});
  }
  std::set<std::string> described;  // stems of the labels
  std::vector<std::string> files;   // images
  std::error_code error;
  for (fs::directory_iterator walk(labels, error); !error && walk != fs::directory_iterator();
       walk.increment(error)) {
    const fs::path& path = walk->path();
    if (path.extension() == ".txt" && path.filename() != "classes.txt" &&
        !is_hidden(path.filename().string())) {
      described.insert(path.stem().string());
    }
  }
  check(!error, "{}: cannot be read: {}", options.annotations, error.message());
  for (fs::directory_iterator walk(images, error); !error && walk != fs::directory_iterator();
       walk.increment(error)) {
    const std::string name = walk->path().filename().string();
    if (has_image_ending(name) && !is_hidden(name)) files.push_back(name);
  }
  check(!error, "{}: cannot be read: {}", options.images, error.message());
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    const std::string stem = fs::path(file).stem().string();
    const auto [height, width] = size_of((images / file).string());
    const auto image = static_cast<int64_t>(truth.images.size());
    truth.images.push_back({.id = image + 1, .file_name = file, .width = width, .height = height});
    if (described.erase(stem) == 0) continue;
    const std::string text = (labels / (stem + ".txt")).string();
    for (const coco::YoloObject& object : coco::read_yolo(text)) {
      check(object.category < static_cast<int64_t>(places.size()),
            "{}: the class must be below {}, as there are names, got {}", text, places.size(),
            object.category);
      const double across = static_cast<double>(width), down = static_cast<double>(height);
      const coco::Box box = {object.box.x * across, object.box.y * down, object.box.width * across,
                             object.box.height * down};
      truth.annotations.push_back({.id = static_cast<int64_t>(truth.annotations.size()) + 1,
                                   .image = image,
                                   .category = places[object.category],
                                   .box = box,
                                   .area = box.area()});
    }
  }
  // What is left has no image: an absent one, for choose() to tell.
  for (const std::string& stem : described) {
    truth.images.push_back(
        {.id = static_cast<int64_t>(truth.images.size()) + 1, .file_name = stem + ".jpg"});
  }
  return truth;
}

}  // namespace

DetectionDataset::DetectionDataset(const DetectionDatasetOptions& options)
    : folder_(options.images) {
  const std::string& file = options.annotations;
  check(options.limit >= 0, "DetectionDataset: limit must be at least 0, got {}", options.limit);
  check_class_names(options.class_names, "DetectionDataset");
  std::error_code ignored;
  check(fs::is_directory(folder_, ignored), "DetectionDataset: images must be a folder, got {}",
        format::in_quotes(folder_));
  const std::string ending = fs::path(file).extension().string();
  const bool is_list = fs::is_directory(file, ignored) || ending == ".txt";
  check(
      is_list || ending == ".json",
      "DetectionDataset: annotations must be a COCO file (.json), a folder of VOC files (.xml) or "
      "a list of them (.txt), or a folder of YOLO's labels (.txt), got {}",
      format::in_quotes(file));
  if (coco::is_yolo_folder(file)) {
    truth_ = read_yolo(options);
  } else if (is_list) {
    coco::Voc voc = coco::read_voc(file, options.class_names);
    truth_ = std::move(voc.annotations);
    points_ = std::move(voc.points);
  } else {
    truth_ = coco::read_annotations(file);
    if (!options.class_names.empty()) {
      check_same_names(names_of(truth_.categories), options.class_names, file);
    }
  }
  classes_ = names_of(truth_.categories);
  keep(choose(options));
}

// Places of the images that make up this set.
std::vector<int64_t> DetectionDataset::choose(const DetectionDatasetOptions& options) {
  const std::string& file = options.annotations;
  const size_t limit = options.limit > 0 ? static_cast<size_t>(options.limit) : SIZE_MAX;
  std::vector<int64_t> chosen;
  for (size_t i = 0; i < truth_.images.size() && chosen.size() < limit; ++i) {
    const coco::Image& image = truth_.images[i];
    check_file_name(image, file);
    if (is_file(fs::path(folder_) / image.file_name)) {
      chosen.push_back(static_cast<int64_t>(i));
      continue;
    }
    check(options.skip_absent,
          "{}: the picture with the id {}: there is no file {} in {}; skip_absent leaves such "
          "pictures out",
          file, image.id, format::in_quotes(image.file_name), folder_);
    absent_.push_back(image.file_name);
  }
  check(!chosen.empty(), "{}: none of its {} pictures is in {}", file, truth_.images.size(),
        folder_);
  return chosen;
}

// Drops the images that are not among the chosen, with all that is in them.
void DetectionDataset::keep(const std::vector<int64_t>& chosen) {
  std::vector<int64_t> new_place(truth_.images.size(), -1);
  std::vector<coco::Image> kept;
  for (const int64_t place : chosen) {
    new_place[place] = static_cast<int64_t>(kept.size());
    kept.push_back(std::move(truth_.images[place]));
  }
  truth_.images = std::move(kept);
  std::vector<coco::Annotation> annotations;
  annotations_of_.resize(truth_.images.size());
  for (coco::Annotation& annotation : truth_.annotations) {
    annotation.image = new_place[annotation.image];
    if (annotation.image < 0) continue;
    annotations_of_[annotation.image].push_back(static_cast<int64_t>(annotations.size()));
    annotations.push_back(annotation);
  }
  truth_.annotations = std::move(annotations);
}

void DetectionDataset::check_index(int64_t index) const {
  check(index >= 0 && index < size(), "DetectionDataset: index must be in [0, {}), got {}", size(),
        index);
}

std::string DetectionDataset::name(int64_t index) const {
  check_index(index);
  return (fs::path(folder_) / truth_.images[index].file_name).string();
}

image::Image DetectionDataset::read(int64_t index) const {
  return image::read_image(name(index), {.channels = 3});
}

std::vector<LabelledBox> DetectionDataset::objects(int64_t index, int64_t height,
                                                   int64_t width) const {
  check_index(index);
  check(height >= 1 && width >= 1,
        "DetectionDataset: height and width must be at least 1, got {} and {}", height, width);
  const coco::Image& image = truth_.images[index];
  const bool is_known = image.width > 0 && image.height > 0;
  const double right = static_cast<double>(width);
  const double bottom = static_cast<double>(height);
  const double known_width = is_known ? static_cast<double>(image.width) : right;
  const double known_height = is_known ? static_cast<double>(image.height) : bottom;
  const auto x = [&](double place) { return std::clamp(place * right / known_width, 0.0, right); };
  const auto y = [&](double place) {
    return std::clamp(place * bottom / known_height, 0.0, bottom);
  };
  std::vector<LabelledBox> found;
  for (const int64_t place : annotations_of_[index]) {
    const coco::Annotation& annotation = truth_.annotations[place];
    if (!is_to_be_learned(annotation)) continue;
    const coco::Box& box = annotation.box;
    const LabelledBox object{
        .label = annotation.category,
        .box = {x(box.x), y(box.y), x(box.x + box.width), y(box.y + box.height)}};
    if (object.area() > 0) found.push_back(object);
  }
  return found;
}

}  // namespace qna::data
