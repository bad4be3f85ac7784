// What a data set is, by looking at it: kind, classes, counts, sizes, and what is wrong with it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "qna/config/network.h"
#include "qna/finetune/image_facts.h"

namespace qna::finetune {

// The images of a split.
struct SplitCount {
  int64_t images = 0;
  int64_t objects = 0;             // of a data set with boxes
  int64_t most_objects = 0;        // in one image
  std::vector<int64_t> per_class;  // images, or objects, of each class
};

struct Survey {
  std::string path;  // where the data lies; may be inside what was given
  config::Kind kind = config::Kind::kClassifier;  // of network that learns from it
  std::string layout;                             // for people: "class folders"
  // The section [data] of a recipe that reads it. Of boxes without a val split, `val` is `train`
  // until split_boxes() has divided them.
  nlohmann::json data = nlohmann::json::object();
  std::vector<std::string> classes;
  SplitCount train;  // all images where there is no val split
  std::optional<SplitCount> val = std::nullopt;
  double held_back = 0;  // the share of them that is to be measured on, where there is none

  int64_t train_images() const { return train.images - (val.has_value() ? 0 : val_images()); }
  int64_t val_images() const;
  ImageFacts facts;
  Duplicates duplicates;
  std::string left_out;  // files that are no images, for people; empty: none
};

// A folder of class folders or a tar of them, with splits or without; idx files; or images with
// boxes as find_boxes() finds them. A folder that has nothing but one folder is that folder. Throws
// qna::Error that says what was found, what was expected and what to do.
Survey survey(const std::string& path);

}  // namespace qna::finetune
