// Ground truth as YOLO keeps it: a .txt file for each image with a line for each object, and the
// names of the classes in data.yaml or classes.txt.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qna/coco/box.h"

namespace qna::coco {

struct YoloObject {
  int64_t category = 0;  // place in the names
  Box box = {};          // left, top, width and height as shares of the image's sides
};

// Lines of "class x y width height": the middle and the size of a box, as shares of the image's
// sides. A line of a class and at least three corners is the outline of an object, whose box is
// taken. Throws qna::Error that names the file, the line, the rule and the value.
std::vector<YoloObject> parse_yolo(std::string_view text, const std::string& origin);
std::vector<YoloObject> read_yolo(const std::string& path);

// What data.yaml says, as far as it is of use here.
struct YoloDescription {
  std::vector<std::string> names;  // of the classes
  // Folders of images, as they are written; empty: not given.
  std::string path, train, val;
};

// A data.yaml: names as a list or by number, in a line or one below the other. Of YAML only what
// such files have; anything else in the keys that are read is an error that names the line.
YoloDescription parse_yolo_description(std::string_view text, const std::string& origin);
YoloDescription read_yolo_description(const std::string& path);

// The names of classes that belong to a folder of labels: of the first classes.txt or data.yaml in
// it or in the three folders above; none where there is neither.
std::vector<std::string> find_yolo_names(const std::string& labels);

// The folder of the labels that belong to one of images: the last "images" in the path is "labels".
// Throws qna::Error where there is none such.
std::string yolo_labels_of(const std::string& images);

// The folder below `root` that a path of data.yaml means; nothing where there is none. Such paths
// are often those of another machine ("/content/set/images/train") or lead astray
// ("../train/images" of a file beside train): the parts of them that are there count.
std::optional<std::string> find_yolo_images(const std::string& root, const std::string& written);

// Whether a folder has .txt files of labels, and no .xml files.
bool is_yolo_folder(const std::string& folder);

}  // namespace qna::coco
