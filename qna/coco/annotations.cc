#include "qna/coco/annotations.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/coco/json_records.h"

namespace qna::coco {
namespace {

template <typename Item>
std::optional<int64_t> find_id(const std::vector<Item>& sorted, int64_t id) {
  const auto found = std::ranges::lower_bound(sorted, id, {}, &Item::id);
  if (found == sorted.end() || found->id != id) return std::nullopt;
  return found - sorted.begin();
}

template <typename Item>
void sort_by_id(std::vector<Item>& items, const std::string& origin, const char* list) {
  std::ranges::stable_sort(items, {}, &Item::id);
  const auto twice = std::ranges::adjacent_find(items, {}, &Item::id);
  if (twice != items.end()) fail("{}: {}: the id {} comes twice", origin, list, twice->id);
}

int64_t pixels(const Record& record, size_t field, const char* name) {
  if (!record.has(field)) return 0;
  const int64_t count = record.integer(field);
  if (count < 1) record.reject("{} must be at least 1, got {}", name, count);
  return count;
}

Image to_image(const Record& record) {
  enum { kId, kFileName, kWidth, kHeight };
  return {.id = record.integer(kId),
          .file_name = record.has(kFileName) ? record.text(kFileName) : "",
          .width = pixels(record, kWidth, "width"),
          .height = pixels(record, kHeight, "height")};
}

Category to_category(const Record& record) {
  enum { kId, kName };
  return {.id = record.integer(kId), .name = record.text(kName)};
}

// `image` and `category` are still ids: the lists they belong to may come later in the file.
Annotation to_annotation(const Record& record) {
  enum { kId, kImage, kCategory, kBox, kArea, kCrowd, kIgnore };
  Annotation annotation{.id = record.integer(kId),
                        .image = record.integer(kImage),
                        .category = record.integer(kCategory),
                        .box = record.box(kBox),
                        .crowd = record.has(kCrowd) && record.flag(kCrowd),
                        .ignore = record.has(kIgnore) && record.flag(kIgnore)};
  annotation.area = record.has(kArea) ? record.number(kArea) : annotation.box.area();
  if (annotation.area < 0) {
    record.reject("area must not be negative, got {}", annotation.area);
  }
  return annotation;
}

void check_ids_differ(const std::vector<Annotation>& annotations, const std::string& origin) {
  std::vector<int64_t> ids;
  ids.reserve(annotations.size());
  for (const Annotation& annotation : annotations) ids.push_back(annotation.id);
  std::ranges::sort(ids);
  const auto twice = std::ranges::adjacent_find(ids);
  if (twice != ids.end()) fail("{}: annotations: the id {} comes twice", origin, *twice);
}

void resolve_ids(Annotations& all, const std::string& origin) {
  for (size_t i = 0; i < all.annotations.size(); ++i) {
    Annotation& annotation = all.annotations[i];
    const auto resolve = [&](int64_t& id, const char* key, const char* list,
                             std::optional<int64_t> found) {
      if (!found.has_value()) {
        fail("{}: {} must be an id in {}, got {}",
             place(origin, "annotations", static_cast<int64_t>(i), annotation.id), key, list, id);
      }
      id = *found;
    };
    resolve(annotation.image, "image_id", "images", all.find_image(annotation.image));
    resolve(annotation.category, "category_id", "categories",
            all.find_category(annotation.category));
  }
}

}  // namespace

std::optional<int64_t> Annotations::find_image(int64_t id) const { return find_id(images, id); }

std::optional<int64_t> Annotations::find_category(int64_t id) const {
  return find_id(categories, id);
}

Annotations parse_annotations(std::string_view text, const std::string& origin) {
  Annotations all;
  const RecordList lists[] = {
      {.key = "images",
       .fields = {"id", "file_name", "width", "height"},
       .take = [&](const Record& record) { all.images.push_back(to_image(record)); }},
      {.key = "annotations",
       .fields = {"id", "image_id", "category_id", "bbox", "area", "iscrowd", "ignore"},
       .take = [&](const Record& record) { all.annotations.push_back(to_annotation(record)); }},
      {.key = "categories",
       .fields = {"id", "name"},
       .take = [&](const Record& record) { all.categories.push_back(to_category(record)); }},
  };
  parse_record_lists(text, origin, lists);
  sort_by_id(all.images, origin, "images");
  sort_by_id(all.categories, origin, "categories");
  check_ids_differ(all.annotations, origin);
  resolve_ids(all, origin);
  return all;
}

Annotations read_annotations(const std::string& path) {
  const auto file = format::MappedFile::open(path);
  return parse_annotations(text_of(*file), path);
}

void write_annotations(const std::string& path, const Annotations& all) {
  using nlohmann::json;
  json out = {
      {"images", json::array()}, {"annotations", json::array()}, {"categories", json::array()}};
  for (const Image& image : all.images) {
    json row = {{"id", image.id}, {"file_name", image.file_name}};
    if (image.width > 0) row.update({{"width", image.width}, {"height", image.height}});
    out["images"].push_back(std::move(row));
  }
  for (const Category& category : all.categories) {
    out["categories"].push_back({{"id", category.id}, {"name", category.name}});
  }
  for (const Annotation& each : all.annotations) {
    out["annotations"].push_back(
        {{"id", each.id},
         {"image_id", all.images.at(each.image).id},
         {"category_id", all.categories.at(each.category).id},
         {"bbox", {each.box.x, each.box.y, each.box.width, each.box.height}},
         {"area", each.area},
         {"iscrowd", each.crowd ? 1 : 0},
         {"ignore", each.ignore ? 1 : 0}});
  }
  write_file(path, out.dump());
}

}  // namespace qna::coco
