// Ground truth in Pascal VOC's XML files, one for each image.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qna/coco/annotations.h"

namespace qna::coco {

struct VocObject {
  int64_t index = 0;  // among the file's objects
  std::string category;
  Box box = {};
  bool difficult = false;
};

// One file.
struct VocImage {
  std::string file_name;  // as the file says; empty: it does not
  int64_t width = 0;      // 0: the file does not say
  int64_t height = 0;
  std::vector<VocObject> objects;
  std::vector<std::string> points;  // objects left out; see Voc
};

struct Voc {
  Annotations annotations;
  // Objects whose box is a single point, as a click makes it: left out, each told with its file.
  std::vector<std::string> points;
};

// Pixels count from 1 and both ends belong to a box: x = xmin - 1, width = xmax - xmin + 1. Throws
// qna::Error that names the file, the object, the rule and the value: what is no XML, missing or
// doubled elements, numbers that are none or huge, boxes whose end lies before their beginning.
// `origin` stands for the file's name.
VocImage parse_voc(std::string_view text, const std::string& origin);

// All .xml files of a folder; or those that a list names, a .txt file with a name per line
// somewhere below a folder ImageSets, which lie in the folder Annotations beside that one. Images
// have the ids 1, 2 ... in order of the files' names. Their file_name is what the file says, or
// else the file's own name with .jpg. Categories have the ids 1, 2 ...: `class_names`, and another
// name is an error; without these the names that occur, sorted. Difficult objects have `ignore`.
Voc read_voc(const std::string& path, const std::vector<std::string>& class_names = {});

}  // namespace qna::coco
