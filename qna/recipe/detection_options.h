// The sections of a recipe that belong to detection.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "qna/config/detr.h"
#include "qna/data/detection_augment.h"
#include "qna/data/detection_dataset.h"
#include "qna/data/preprocess.h"
#include "qna/recipe/reading_options.h"

namespace qna::tasks {

enum class Freeze {
  kNone,
  kFirstStage,  // stem and first stage, as DETR does with a ResNet
  kBackbone,
};

// DETR's loss, see tasks/set_loss.h.
struct SetLossOptions {
  // What a pair costs, for the matching.
  double class_cost = 1;
  double box_cost = 5;
  double giou_cost = 2;
  // What the terms weigh in the total.
  double class_weight = 1;
  double box_weight = 5;
  double giou_weight = 2;
  // What a prediction of "no object" weighs beside one of an object, which are far fewer.
  double no_object = 0.1;
};

struct DetectionTaskOptions {
  // [model]: a name of the list of detectors, and what differs from it in [model.config]. The
  // classes are those of the data.
  std::string model = "detr_r50";
  nlohmann::json config = nlohmann::json::object();
  std::string backbone;         // a classifier's file: its network and weights are the backbone
  int64_t backbone_stages = 0;  // only so many stages of that network, for a finer map; 0: all
  std::string weights;  // a file to start from: a detector's, or a classifier's for the backbone
  Freeze freeze = Freeze::kNone;

  // [data]: paths below data.path; `limit` and `absent` hold for both.
  std::string path;
  data::DetectionDatasetOptions train = {.images = "train2017",
                                         .annotations = "annotations/instances_train2017.json"};
  data::DetectionDatasetOptions val = {.images = "val2017",
                                       .annotations = "annotations/instances_val2017.json"};
  ReadingOptions reading;

  config::Preprocess preprocess;                  // [preprocess]: of validation and detection
  std::optional<data::DetectionAugment> augment;  // [augment]; none: as in validation
  SetLossOptions loss;                            // [loss]
};

// sections: model, data, preprocess, augment, loss. Throws qna::Error that begins with "recipe: "
// for unknown keys and wrong values.
DetectionTaskOptions detection_options(const nlohmann::json& sections);

// The configuration of the network: the list's with the changes.
config::DetrConfig detector_config(const DetectionTaskOptions& options, int64_t classes);

}  // namespace qna::tasks
