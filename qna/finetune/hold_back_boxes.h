// A part of a data set with boxes, held back to measure on.
#pragma once

#include <string>

#include "qna/coco/annotations.h"
#include "qna/finetune/survey.h"

namespace qna::finetune {

struct HeldBackBoxes {
  coco::Annotations train;
  coco::Annotations val;
};

// round(fraction * images) of the images go to val, at least one to each side; which ones is
// decided by the seed. Throws qna::Error for fewer than two images.
HeldBackBoxes hold_back_boxes(const coco::Annotations& whole, double fraction, uint64_t seed);

// Where a survey found boxes but no val split: writes train.json and val.json into the folder and
// puts them into the recipe's section [data]. Otherwise nothing.
void split_boxes(const Survey& survey, nlohmann::json& data, const std::string& folder);

}  // namespace qna::finetune
