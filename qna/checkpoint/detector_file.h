// A detector on disk: a safetensors file whose metadata says all that detection needs.
#pragma once

#include "qna/checkpoint/model_file.h"
#include "qna/models/detr.h"

namespace qna::checkpoint {

struct DetectorInfo {
  std::string name = {};
  data::Preprocess preprocess = {};        // with crop 0, 0
  std::vector<std::string> labels = {};    // of the classes
  std::vector<int64_t> category_ids = {};  // of the classes, for COCO's JSON; as many as labels
  nlohmann::json training = {};
};

struct LoadedDetector {
  models::Detr model{nullptr};  // in evaluation mode
  DetectorInfo info;
  LoadReport report;
};

// Whether the file is a detector's (its metadata has "kind": "detector") and not a classifier's.
bool is_detector_file(const std::string& path);

void save_detector(const std::string& path, const models::Detr& model, const DetectorInfo& info,
                   at::ScalarType dtype = at::kFloat, const NamedTensors& training = {});
LoadedDetector load_detector(const std::string& path);

// Weights to start from: a detector's file (a class head of other classes keeps its initial values,
// and so do object queries of another number), or a classifier's, which fills the backbone: a
// QnA-ViT written by qna, or a ResNet with torchvision's names. The report says what was not
// filled. What does not fit otherwise is a qna::Error.
LoadReport load_detector_weights(models::Detr& model, const std::string& path);

}  // namespace qna::checkpoint
