#include "qna/data/teacher_targets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "qna/base/error.h"
#include "qna/base/half.h"
#include "qna/data/subset.h"
#include "qna/format/fields.h"

namespace qna::data {
namespace {

using format::DType;
using format::TensorView;

constexpr int64_t kViewNumbers = 5;  // top, left, height, width, mirrored

// A tensor of this type whose shape is `shape`, where 0 stands for any size.
const TensorView& tensor(const format::SafetensorsFile& file, const std::string& path,
                         const char* name, DType dtype, const std::vector<int64_t>& shape) {
  const TensorView* found = file.find(name);
  check(found != nullptr,
        "{}: there is no tensor '{}'; this is not a file of a teacher's targets, which "
        "python -m qna.teacher writes",
        path, name);
  bool fits = found->dtype == dtype && found->shape.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = found->shape[i] >= 1 && (shape[i] == 0 || found->shape[i] == shape[i]);
  }
  check(fits, "{}: '{}' must be {} of size [{}] (0: any), got {} of size [{}]", path, name,
        format::name_of(dtype), fmt::join(shape, ", "), format::name_of(found->dtype),
        fmt::join(found->shape, ", "));
  return *found;
}

// Numbers of a row; files from elsewhere may not be aligned.
template <typename T>
void copy_row(const TensorView& from, int64_t row, int64_t count, T* out) {
  std::memcpy(out, from.bytes.data() + static_cast<size_t>(row * count) * sizeof(T),
              static_cast<size_t>(count) * sizeof(T));
}

std::array<int32_t, kViewNumbers> view_row(const format::SafetensorsFile& file, int64_t row) {
  std::array<int32_t, kViewNumbers> numbers;
  copy_row(file.at("views"), row, kViewNumbers, numbers.data());
  return numbers;
}

std::array<int32_t, 2> image_size(const format::SafetensorsFile& file, int64_t image) {
  std::array<int32_t, 2> size;
  copy_row(file.at("sizes"), image, 2, size.data());
  return size;
}

std::vector<std::string> read_classes(const format::SafetensorsFile& file,
                                      const std::string& path) {
  const auto found = file.metadata().find("classes");
  const nlohmann::json list =
      found == file.metadata().end()
          ? nlohmann::json()
          : format::parse_json(found->second, path + ": the metadata entry 'classes'");
  const bool names = list.is_array() && std::all_of(list.begin(), list.end(), [](const auto& name) {
                       return name.is_string();
                     });
  check(names, "{}: the metadata entry 'classes' must be a list of names", path);
  return list.get<std::vector<std::string>>();
}

// Halves to floats.
void copy_halves(const TensorView& from, int64_t row, int64_t count, float* out) {
  std::vector<Float16> halves(static_cast<size_t>(count));
  copy_row(from, row, count, halves.data());
  std::transform(halves.begin(), halves.end(), out, [](Float16 half) { return to_float(half); });
}

std::vector<std::string> files_at(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::string> files = format::safetensors_in(path);
  check(!files.empty(),
        "{}: this folder has no file of a teacher's targets; python -m qna.teacher writes them",
        path);
  return files;
}

}  // namespace

TeacherTargets::TeacherTargets(const std::vector<std::string>& paths) {
  check(!paths.empty(), "TeacherTargets: paths must name a file or folder, got none");
  for (const std::string& path : paths) {
    for (const std::string& file : files_at(path)) add(format::SafetensorsFile(file), file);
  }
}

TeacherTargets::TeacherTargets(std::shared_ptr<const std::string> bytes,
                               const std::string& origin) {
  add(format::SafetensorsFile(std::move(bytes), origin), origin);
}

void TeacherTargets::add(format::SafetensorsFile opened, const std::string& path) {
  File file{std::move(opened), path};
  const int64_t images = tensor(file.file, path, "sizes", DType::kI32, {0, 2}).shape[0];
  file.views = tensor(file.file, path, "views", DType::kI32, {images, 0, kViewNumbers}).shape[1];
  const int64_t classes =
      tensor(file.file, path, "logits", DType::kF16, {images, file.views, 0}).shape[2];
  const int64_t features =
      file.file.find("features") == nullptr
          ? 0
          : tensor(file.file, path, "features", DType::kF16, {images, file.views, 0}).shape[2];
  std::vector<std::string> names = read_classes(file.file, path);
  check(static_cast<int64_t>(names.size()) == classes,
        "{}: there must be as many classes as logits, got {} and {}", path, names.size(), classes);
  if (files_.empty()) {
    classes_ = std::move(names);
    features_ = features;
  }
  check(files_.empty() || (names == classes_ && features == features_),
        "{}: all files must be of one teacher, but its classes or features are not those of {}",
        path, files_.empty() ? path : files_.front().path);
  check_views(file, images);
  files_.push_back(std::move(file));
  add_names(files_.size() - 1, images);
}

void TeacherTargets::check_views(const File& file, int64_t images) const {
  for (int64_t image = 0; image < images; ++image) {
    const auto [height, width] = image_size(file.file, image);
    for (int64_t row = image * file.views; row < (image + 1) * file.views; ++row) {
      const auto [top, left, h, w, mirrored] = view_row(file.file, row);
      const bool inside = top >= 0 && left >= 0 && h >= 1 && w >= 1 && h <= height && w <= width &&
                          top <= height - h && left <= width - w;
      check(inside && (mirrored == 0 || mirrored == 1),
            "{}: a view must lie inside its picture of {} x {} pixels and be mirrored (1) or not "
            "(0), got top {}, left {}, height {}, width {}, mirrored {}",
            file.path, height, width, top, left, h, w, mirrored);
    }
  }
}

void TeacherTargets::add_names(size_t index, int64_t images) {
  const File& file = files_[index];
  const TensorView& bytes = tensor(file.file, file.path, "names", DType::kU8, {0});
  const std::string_view text(reinterpret_cast<const char*>(bytes.bytes.data()),
                              bytes.bytes.size());
  check(std::count(text.begin(), text.end(), '\n') + 1 == images,
        "{}: 'names' must be {} lines, one for each picture, got {}", file.path, images,
        std::count(text.begin(), text.end(), '\n') + 1);
  size_t begin = 0;
  for (int64_t image = 0; image < images; ++image) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::vector<Place>& places = places_[std::string(text.substr(begin, end - begin))];
    for (int64_t view = 0; view < file.views; ++view) {
      places.push_back({index, image * file.views + view});
    }
    begin = end + 1;
  }
}

const std::vector<TeacherTargets::Place>& TeacherTargets::places(std::string_view name) const {
  static const std::vector<Place> none;
  while (true) {
    const auto found = places_.find(std::string(name));
    if (found != places_.end()) return found->second;
    const size_t folder = name.find_first_of("/:");  // a colon: behind the name of an archive
    if (folder == std::string_view::npos) return none;
    name.remove_prefix(folder + 1);
  }
}

View TeacherTargets::view(const Place& place, const image::Image& image,
                          const std::string& name) const {
  const File& file = files_[place.file];
  const auto [height, width] = image_size(file.file, place.row / file.views);
  check(image.height == height && image.width == width,
        "{}: the teacher saw a picture of {} x {} pixels, but this one has {} x {}; write the "
        "targets anew",
        name, height, width, image.height, image.width);
  const auto [top, left, h, w, mirrored] = view_row(file.file, place.row);
  return {top, left, h, w, mirrored == 1};
}

void TeacherTargets::probabilities(const Place& place, double temperature, float* out) const {
  const File& file = files_[place.file];
  const auto classes = static_cast<int64_t>(classes_.size());
  copy_halves(file.file.at("logits"), place.row, classes, out);
  const float highest = *std::max_element(out, out + classes);
  float sum = 0;
  for (int64_t i = 0; i < classes; ++i) {
    out[i] = std::exp((out[i] - highest) / static_cast<float>(temperature));
    sum += out[i];
  }
  check(std::isfinite(sum), "{}: view {}: the logits must be finite", file.path, place.row);
  for (int64_t i = 0; i < classes; ++i) out[i] /= sum;
}

void TeacherTargets::features(const Place& place, float* out) const {
  copy_halves(files_[place.file].file.at("features"), place.row, features_, out);
}

std::shared_ptr<const Dataset> seen_by(const TeacherTargets& teacher,
                                       std::shared_ptr<const Dataset> dataset) {
  std::vector<int64_t> seen;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    if (!teacher.places(dataset->name(i)).empty()) seen.push_back(i);
  }
  check(!seen.empty(),
        "the teacher's targets are of other pictures: there are none for {}, nor for the rest",
        dataset->name(0));
  if (static_cast<int64_t>(seen.size()) == dataset->size()) return dataset;
  return std::make_shared<Subset>(std::move(dataset), std::move(seen));
}

}  // namespace qna::data
