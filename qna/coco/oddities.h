// What is strange in a ground truth but no error, and what becomes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qna/coco/annotations.h"

namespace qna::coco {

struct Oddity {
  std::string what;          // a rule that names the things and what becomes of them
  std::vector<int64_t> ids;  // of the annotations, images or categories it is about
};

// Only kinds that occur.
std::vector<Oddity> find_oddities(const Annotations& annotations);

// "3 annotations have a box without area: not used in training (ids 4, 17, 18)", cut when long.
std::string to_text(const Oddity& oddity);

}  // namespace qna::coco
