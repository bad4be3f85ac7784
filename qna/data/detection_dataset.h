// Images with boxes: COCO's JSON, Pascal VOC's XML or YOLO's text files, beside a folder of images.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "qna/coco/annotations.h"
#include "qna/image/image.h"

namespace qna::data {

struct LabelledBox {
  int64_t label = 0;                         // place of its category
  std::array<double, 4> box = {0, 0, 0, 0};  // left, top, right, bottom in pixels

  double area() const { return (box[2] - box[0]) * (box[3] - box[1]); }
  bool operator==(const LabelledBox&) const = default;
};

struct DetectionDatasetOptions {
  std::string images;  // folder that the file names of the annotations are relative to
  // A COCO file (.json); a folder of VOC files (.xml); or a list of names (.txt, one per line) as
  // VOC keeps them in ImageSets/Main, with the .xml files in Annotations beside ImageSets; or a
  // folder of YOLO's files (.txt), of which an image without one has no objects.
  std::string annotations;
  int64_t limit = 0;         // only the first so many images; 0: all
  bool skip_absent = false;  // leave out images whose file is not there, instead of throwing
  // Names of the categories, in order of the labels: for VOC files, which know only those that
  // occur. Empty: those of the file; of VOC files, those that occur, sorted; of YOLO's, those of
  // classes.txt or data.yaml. A COCO file must have these very names, in order of their ids; YOLO's
  // must be among them.
  std::vector<std::string> class_names = {};
};

// Reading is safe from many threads at once.
class DetectionDataset {
 public:
  // Throws qna::Error that names the file and the rule. No image is decoded yet.
  explicit DetectionDataset(const DetectionDatasetOptions& options);

  int64_t size() const { return static_cast<int64_t>(truth_.images.size()); }
  std::string name(int64_t index) const;   // its path
  image::Image read(int64_t index) const;  // RGB; throws qna::Error that names the image
  // What is to be learned in an image of this size, which may differ from the annotated one: then
  // boxes are scaled. Clipped to the image; without crowds, objects to be ignored (VOC's
  // difficult ones) and boxes that have no area left.
  std::vector<LabelledBox> objects(int64_t index, int64_t height, int64_t width) const;
  // For the evaluation: the images of this set only, the i-th image is this one's i-th.
  const coco::Annotations& truth() const { return truth_; }
  const std::vector<std::string>& classes() const { return classes_; }
  const std::vector<std::string>& absent() const { return absent_; }  // images left out
  // Objects of VOC files that were left out because their box is a point, each with its file.
  const std::vector<std::string>& points() const { return points_; }

 private:
  void check_index(int64_t index) const;
  std::vector<int64_t> choose(const DetectionDatasetOptions& options);
  void keep(const std::vector<int64_t>& chosen);

  std::string folder_;  // of the images
  coco::Annotations truth_;
  std::vector<std::string> classes_;
  std::vector<std::string> absent_;
  std::vector<std::string> points_;
  std::vector<std::vector<int64_t>> annotations_of_;  // places in truth_.annotations, per image
};

}  // namespace qna::data
