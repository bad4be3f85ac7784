// A training image with its boxes, changed at random, by DETR's definitions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "qna/base/random.h"
#include "qna/data/detection_dataset.h"
#include "qna/data/preprocess.h"  // resized_size()
#include "qna/image/resize.h"

namespace qna::data {

// The steps in their order.
struct DetectionAugment {
  double flip = 0.5;  // probability of a mirror image
  // The shorter side gets one of these lengths, the longer at most `longest` (0: any), as
  // resized_size() rounds.
  std::vector<int64_t> shorter = {480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800};
  int64_t longest = 1333;
  // With this probability, before that: the shorter side is resized to one of crop_shorter, and a
  // part is cut out whose height and width are at random between crop_size[0] and crop_size[1] (or
  // the image's, if that is less).
  double crop = 0.5;
  std::vector<int64_t> crop_shorter = {400, 500, 600};
  std::array<int64_t, 2> crop_size = {384, 600};
  image::Filter filter = image::Filter::kBilinear;
  double color_jitter = 0;  // as in Augment; not part of DETR's

  bool operator==(const DetectionAugment&) const = default;
};

// Throws qna::Error that begins with `where` and names the field, the rule and the value.
void check_augment(const DetectionAugment& augment, const char* where);

struct DetectionSample {
  image::Image image;
  std::vector<LabelledBox> objects;  // in pixels of the image; those cut off wholly are gone
};

DetectionSample augment(const DetectionSample& sample, const DetectionAugment& options,
                        Random& random);

// The single steps. Boxes move with the pixels.
DetectionSample flip(const DetectionSample& sample);
DetectionSample resize(const DetectionSample& sample, int64_t height, int64_t width,
                       image::Filter filter);
DetectionSample crop(const DetectionSample& sample, int64_t top, int64_t left, int64_t height,
                     int64_t width);

// Boxes of an image of size `from`, {height, width}, in one of size `to`.
std::vector<LabelledBox> scaled(std::vector<LabelledBox> objects, std::array<int64_t, 2> from,
                                std::array<int64_t, 2> to);

}  // namespace qna::data
