#include "qna/finetune/survey.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>

#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/data/detection_dataset.h"
#include "qna/data/image_name.h"
#include "qna/data/open_dataset.h"
#include "qna/finetune/find_boxes.h"

namespace qna::finetune {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The share that is held back of a set without a val split: enough to tell runs apart, and not
// more.
double fraction_of(int64_t images) { return images < 40 ? 0.3 : 0.15; }

// Where a folder has nothing but one folder, which has folders again, that one is meant: archives
// are often unpacked so.
std::string without_wrappers(const std::string& path) {
  fs::path inner = path;
  for (int depth = 0; depth < 4; ++depth) {
    std::vector<fs::path> entries;
    std::error_code error;
    fs::directory_iterator walk(inner, error);
    for (; !error && walk != fs::directory_iterator(); walk.increment(error)) {
      const std::string name = walk->path().filename().string();
      if (!data::is_hidden(name) && name != "__MACOSX") entries.push_back(walk->path());
    }
    if (entries.size() != 1 || !fs::is_directory(entries[0], error)) break;
    fs::directory_iterator below(entries[0], error);
    const bool has_folders = std::any_of(below, fs::directory_iterator(), [](const auto& entry) {
      std::error_code ignored;
      return entry.is_directory(ignored);
    });
    if (error || !has_folders) break;
    inner = entries[0];
  }
  return inner.string();
}

// ---- one label per image ----

std::string layout_of(const std::string& path, const data::Dataset& dataset) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return "a tar of class folders";
  return dataset.name(0).ends_with("]") ? "idx files" : "class folders";
}

// The name of the split that pictures are measured on; empty: there is none.
std::string val_name(const std::string& path) {
  for (const char* name : {"val", "valid", "validation"}) {
    if (data::has_split(path, name)) return name;
  }
  return "";
}

SplitCount count_labels(const data::Dataset& dataset, size_t classes) {
  SplitCount count{.images = dataset.size(), .per_class = std::vector<int64_t>(classes)};
  for (int64_t i = 0; i < dataset.size(); ++i) ++count.per_class.at(dataset.label(i));
  return count;
}

std::vector<std::string> names_of(const auto& dataset) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < dataset.size(); ++i) names.push_back(dataset.name(i));
  return names;
}

void check_classes(const Survey& s, const data::Dataset& val, const std::string& val_split) {
  std::vector<std::string> missing, strange;
  std::ranges::set_difference(s.classes, val.classes(), std::back_inserter(missing));
  std::ranges::set_difference(val.classes(), s.classes, std::back_inserter(strange));
  check(missing.empty() && strange.empty(),
        "{}: the splits must have the same classes; only in 'train': {}; only in '{}': {}. Add or "
        "remove these folders, or take '{}' away: then pictures are held back from 'train'",
        s.path, missing.empty() ? "none" : fmt::format("{}", fmt::join(missing, ", ")), val_split,
        strange.empty() ? "none" : fmt::format("{}", fmt::join(strange, ", ")), val_split);
}

Survey survey_labels(const std::string& path) {
  Survey s;
  s.path = path;
  s.data = {{"path", path}};
  const bool has_train = data::has_split(path, "train");
  const std::string val_split = has_train ? val_name(path) : "";
  const auto train = data::open_dataset({.path = path, .split = has_train ? "train" : ""});
  s.layout = layout_of(path, *train);
  s.classes = train->classes();
  check(s.classes.size() >= 2,
        "{}: there is one class, '{}'; a classifier tells at least two apart: make a folder of "
        "pictures for each",
        path, s.classes.front());
  s.train = count_labels(*train, s.classes.size());
  s.left_out = train->left_out();
  s.facts = look_at({.count = train->size(), .read = [&](int64_t i) { return train->read(i, 3); }});
  if (val_split.empty()) {
    s.held_back = fraction_of(s.train.images);
    s.data["val_fraction"] = s.held_back;
    s.duplicates = find_duplicates(names_of(*train), {});
    return s;
  }
  const auto val = data::open_dataset({.path = path, .split = val_split});
  check_classes(s, *val, val_split);
  s.val = count_labels(*val, s.classes.size());
  if (val_split != "val") s.data["val"] = val_split;
  s.duplicates = find_duplicates(names_of(*train), names_of(*val));
  return s;
}

// ---- boxes ----

SplitCount count_objects(const data::DetectionDataset& dataset) {
  SplitCount count{.images = dataset.size(),
                   .per_class = std::vector<int64_t>(dataset.classes().size())};
  std::vector<int64_t> per_image(dataset.size());
  for (const coco::Annotation& annotation : dataset.truth().annotations) {
    if (annotation.crowd || annotation.ignore) continue;
    ++count.objects;
    ++count.per_class.at(annotation.category);
    count.most_objects = std::max(count.most_objects, ++per_image.at(annotation.image));
  }
  return count;
}

data::DetectionDataset open_boxes(const BoxPlace& place, const std::vector<std::string>& names) {
  return data::DetectionDataset({.images = place.images,
                                 .annotations = place.annotations,
                                 .skip_absent = true,
                                 .class_names = names});
}

// VOC files know only the classes that occur in them, so those of both splits count.
std::vector<std::string> all_names(const BoxPlaces& places) {
  if (!places.val.has_value() || places.layout != "VOC's XML") return {};
  std::set<std::string> names;
  for (const BoxPlace& place : {places.train, *places.val}) {
    const data::DetectionDataset split = open_boxes(place, {});
    names.insert(split.classes().begin(), split.classes().end());
  }
  return {names.begin(), names.end()};
}

void add_split(json& data, const char* split, const BoxPlace& place) {
  const auto absolute = [](const std::string& path) {
    return fs::absolute(path).lexically_normal().string();
  };
  data[split] = absolute(place.annotations);
  data[std::string(split) + "_images"] = absolute(place.images);
}

Survey survey_boxes(const std::string& path, const BoxPlaces& places) {
  Survey s;
  s.path = path;
  s.kind = config::Kind::kDetector;
  s.layout = places.layout;
  s.data = {{"path", path}, {"absent", "skip"}};
  const std::vector<std::string> names = all_names(places);
  if (!names.empty()) s.data["class_names"] = names;
  const data::DetectionDataset train = open_boxes(places.train, names);
  s.classes = train.classes();
  s.train = count_objects(train);
  check(s.train.objects > 0, "{}: there are no boxes in it, so there is nothing to learn",
        places.train.annotations);
  add_split(s.data, "train", places.train);
  s.facts = look_at({.count = train.size(), .read = [&](int64_t i) { return train.read(i); }});
  if (!train.absent().empty()) {
    s.left_out = fmt::format("{} pictures have boxes but no file, such as {}",
                             train.absent().size(), train.absent().front());
  }
  if (!places.val.has_value()) {
    check(s.train.images >= 2, "{}: there must be at least 2 pictures, one to measure on, got {}",
          places.train.annotations, s.train.images);
    s.held_back = fraction_of(s.train.images);
    add_split(s.data, "val", places.train);
    s.duplicates = find_duplicates(names_of(train), {});
    return s;
  }
  const data::DetectionDataset val = open_boxes(*places.val, names);
  check(val.classes() == s.classes,
        "{} and {} must have the same classes in the same order, but they have {} and {}; take the "
        "second away: then pictures are held back from the first",
        places.train.annotations, places.val->annotations, fmt::join(s.classes, ", "),
        fmt::join(val.classes(), ", "));
  s.val = count_objects(val);
  check(s.val->objects > 0, "{}: there are no boxes in it to measure a detector by",
        places.val->annotations);
  add_split(s.data, "val", *places.val);
  s.duplicates = find_duplicates(names_of(train), names_of(val));
  return s;
}

}  // namespace

int64_t Survey::val_images() const {
  if (val.has_value()) return val->images;
  return std::clamp<int64_t>(std::llround(held_back * static_cast<double>(train.images)), 1,
                             std::max<int64_t>(1, train.images - 1));
}

Survey survey(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  check(fs::exists(status), "{}: there is no such file or folder{}", path, did_you_mean_file(path));
  Survey found;
  if (!fs::is_directory(status)) {
    found = survey_labels(path);
  } else {
    const std::string folder = without_wrappers(path);
    const std::optional<BoxPlaces> boxes = find_boxes(folder);
    found = boxes.has_value() ? survey_boxes(folder, *boxes) : survey_labels(folder);
  }
  check(static_cast<int64_t>(found.facts.broken.size()) < found.facts.opened,
        "{}: none of the {} pictures that were opened can be read; the first: {}", path,
        found.facts.opened, found.facts.broken.empty() ? "" : found.facts.broken.front());
  found.data["broken"] = "skip";  // a run should not end at a file that nobody opened before
  return found;
}

}  // namespace qna::finetune
