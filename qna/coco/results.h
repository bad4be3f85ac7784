// What a detector found, in the JSON format that pycocotools' loadRes takes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qna/coco/annotations.h"

namespace qna::coco {

struct Detection {
  int64_t image_id = 0;
  int64_t category_id = 0;
  Box box = {};
  double score = 0;  // larger is more certain; any finite number
};

// A list of {image_id, category_id, bbox, score}; other keys are skipped. As in pycocotools a
// image that `truth` does not have is an error, and a category that it does not have is none: it
// counts nowhere. Throws qna::Error that names the file, the entry, the rule and the value. An
// empty list is a result too, though pycocotools cannot read it.
std::vector<Detection> read_results(const std::string& path, const Annotations& truth);
std::vector<Detection> parse_results(std::string_view text, const std::string& origin,
                                     const Annotations& truth);

// The file is whole or absent. Numbers are written so that reading gives the same bits.
void write_results(const std::string& path, std::span<const Detection> detections);

}  // namespace qna::coco
