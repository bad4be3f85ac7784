// Where the boxes of a data set lie, by looking at its folder.
#pragma once

#include <optional>
#include <string>

namespace qna::finetune {

struct BoxPlace {
  std::string images;       // a folder
  std::string annotations;  // as data::DetectionDatasetOptions takes them
};

struct BoxPlaces {
  std::string layout;  // for people: "COCO's JSON"
  BoxPlace train;
  std::optional<BoxPlace> val = std::nullopt;
};

// COCO's JSON (in the folder, in annotations/, or in train/ and valid/), YOLO's labels (data.yaml,
// images/ and labels/ with splits or without, labels and classes.txt beside the images) or VOC's
// XML (Annotations/ and JPEGImages/, or beside the images). Nothing: there are no boxes. Throws
// qna::Error for a file that must be meant, but is broken.
std::optional<BoxPlaces> find_boxes(const std::string& root);

}  // namespace qna::finetune
