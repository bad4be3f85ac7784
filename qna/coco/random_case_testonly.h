// Random ground truth and detections, the same that tests/coco/make_golden.py gives to pycocotools.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "qna/coco/annotations.h"
#include "qna/coco/results.h"

namespace qna::coco::testing {

class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed) {}
  int64_t below(int64_t limit) {
    state_ = state_ * 1664525u + 1013904223u;
    return (state_ >> 8) % limit;
  }

 private:
  uint32_t state_;
};

struct Case {
  Annotations truth;
  std::vector<Detection> detections;
};

// Bits of the number choose what is special, from the lowest on: crowds; many equal scores; more
// than 100 detections of an image and category; a category without objects; ids from 0 on. In all
// of them images may be empty, and numbers are quarters, so that overlaps lie on the thresholds.
inline Case random_case(int number) {
  const auto bit = [&](int place) { return (number >> place & 1) != 0; };
  const bool crowds = bit(0), ties = bit(1), many = bit(2), unused = bit(3), zero = bit(4);
  Random random(static_cast<uint32_t>(number + 1));
  const int64_t images = 1 + random.below(10);
  const int64_t categories = 1 + random.below(many ? 2 : 5);
  Case out;
  for (int64_t i = 0; i < images; ++i) {
    out.truth.images.push_back({.id = 3 * i + 5, .file_name = "", .width = 0, .height = 0});
  }
  for (int64_t i = 0; i < categories; ++i) {
    out.truth.categories.push_back({.id = 2 * i + 1, .name = fmt::format("c{}", i)});
  }

  const auto quarter = [&](int64_t limit) { return static_cast<double>(random.below(limit)) / 4; };
  const auto length = [&] {
    constexpr double kSizes[] = {0, 8, 32, 64, 96, 128};
    if (random.below(2) != 0) return kSizes[random.below(6)];
    return static_cast<double>(1 + random.below(600)) / 4;
  };
  const auto box = [&] {  // braces draw from left to right
    return Box{quarter(400), quarter(400), length(), length()};
  };
  const auto shift = [&] { return static_cast<double>(random.below(9) - 4); };
  for (int64_t image = 0; image < images; ++image) {
    std::vector<Annotation> objects;
    for (int64_t left = random.below(9); left > 0; --left) {
      Annotation object{.image = image, .box = box()};
      object.category = random.below(categories);
      if (unused && object.category == categories - 1) object.category = 0;
      object.crowd = crowds && random.below(4) == 0;
      object.area = object.box.area() * static_cast<double>(4 - random.below(2)) / 4;
      object.id = static_cast<int64_t>(out.truth.annotations.size()) + (zero ? 0 : 1);
      objects.push_back(object);
      out.truth.annotations.push_back(object);
    }
    for (int64_t left = random.below(many ? 260 : 14); left > 0; --left) {
      Detection detection{.image_id = out.truth.images[image].id};
      int64_t category = 0;
      if (!objects.empty() && random.below(3) != 0) {
        const Annotation& near = objects[random.below(static_cast<int64_t>(objects.size()))];
        category = near.category;
        detection.box =
            Box{near.box.x + shift() / 2, near.box.y + shift() / 2,
                std::max(0.0, near.box.width + shift()), std::max(0.0, near.box.height + shift())};
        if (random.below(4) == 0) detection.box = near.box;
      } else {
        detection.box = box();
        category = random.below(categories);
      }
      detection.category_id = random.below(20) == 0 ? 999 : out.truth.categories[category].id;
      detection.score = ties ? quarter(5) : static_cast<double>(random.below(1 << 20)) / (1 << 20);
      out.detections.push_back(detection);
    }
  }
  return out;
}

}  // namespace qna::coco::testing
