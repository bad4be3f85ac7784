#include "qna/finetune/hold_back_boxes.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "qna/base/error.h"
#include "qna/base/random.h"
#include "qna/data/detection_dataset.h"
#include "qna/data/order.h"

namespace qna::finetune {
namespace {

namespace fs = std::filesystem;

void add_image(coco::Annotations& to, const coco::Annotations& whole, int64_t image,
               const std::vector<const coco::Annotation*>& objects) {
  for (const coco::Annotation* object : objects) {
    to.annotations.push_back(*object);
    to.annotations.back().image = static_cast<int64_t>(to.images.size());
  }
  to.images.push_back(whole.images[image]);
}

}  // namespace

HeldBackBoxes hold_back_boxes(const coco::Annotations& whole, double fraction, uint64_t seed) {
  const auto count = static_cast<int64_t>(whole.images.size());
  check(count >= 2, "hold_back_boxes: there must be at least 2 pictures, got {}", count);
  const int64_t held_back =
      std::clamp<int64_t>(std::llround(fraction * static_cast<double>(count)), 1, count - 1);
  std::vector<bool> is_val(count);
  Random random(seed, 0, 0, kSplit);
  const std::vector<int64_t> order = data::permutation(count, random);
  for (int64_t i = 0; i < held_back; ++i) is_val[order[i]] = true;
  std::vector<std::vector<const coco::Annotation*>> objects(count);
  for (const coco::Annotation& annotation : whole.annotations) {
    objects.at(annotation.image).push_back(&annotation);
  }
  HeldBackBoxes parts;
  parts.train.categories = parts.val.categories = whole.categories;
  for (int64_t i = 0; i < count; ++i) {
    add_image(is_val[i] ? parts.val : parts.train, whole, i, objects[i]);
  }
  return parts;
}

void split_boxes(const Survey& survey, nlohmann::json& data, const std::string& folder) {
  if (survey.kind != config::Kind::kDetector || survey.val.has_value()) return;
  const data::DetectionDataset whole(
      {.images = data.at("train_images").get<std::string>(),
       .annotations = data.at("train").get<std::string>(),
       .skip_absent = true,
       .class_names = data.value("class_names", std::vector<std::string>{})});
  constexpr uint64_t kSeed = 0;
  const HeldBackBoxes parts = hold_back_boxes(whole.truth(), survey.held_back, kSeed);
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, "{}: cannot make the folder: {}", folder, error.message());
  const auto write = [&](const char* split, const coco::Annotations& part) {
    const fs::path path = fs::absolute(fs::path(folder) / (std::string(split) + ".json"));
    coco::write_annotations(path.string(), part);
    data[split] = path.lexically_normal().string();
  };
  write("train", parts.train);
  write("val", parts.val);
}

}  // namespace qna::finetune
