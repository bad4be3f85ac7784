// The ground truth of a data set in COCO's JSON format: images, categories and boxes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qna/coco/box.h"

namespace qna::coco {

struct Image {
  int64_t id = 0;
  std::string file_name;  // empty: the file does not say
  int64_t width = 0;      // 0: the file does not say
  int64_t height = 0;
};

struct Category {
  int64_t id = 0;  // COCO's ids have gaps
  std::string name;
};

struct Annotation {
  int64_t id = 0;
  int64_t image = 0;     // place in Annotations::images
  int64_t category = 0;  // place in Annotations::categories
  Box box = {};          // as in the file: it may reach beyond the image
  double area = 0;       // of the segmentation; of the box where the file does not say
  bool crowd = false;    // a region of many objects that are not told apart
  bool ignore = false;   // not to be learned from; the evaluation counts it, as pycocotools does
};

struct Annotations {
  std::vector<Image> images;            // by rising id
  std::vector<Category> categories;     // by rising id: the place of one is the class of a model
  std::vector<Annotation> annotations;  // as in the file; the evaluation depends on their order

  // The place of an id; nothing where there is none such.
  std::optional<int64_t> find_image(int64_t id) const;
  std::optional<int64_t> find_category(int64_t id) const;
};

// Segmentations and other keys are skipped. Throws qna::Error that names the file, the object, the
// rule and the value for whatever cannot be meant: missing keys, wrong types, numbers that
// overflow, boxes of negative size, ids that come twice or belong to nothing.
Annotations read_annotations(const std::string& path);

// The same for a text that is at hand; `origin` stands for the file's name in messages.
Annotations parse_annotations(std::string_view text, const std::string& origin);

// The file is whole or absent; reading it gives the same numbers.
void write_annotations(const std::string& path, const Annotations& annotations);

}  // namespace qna::coco
