// Detectors from and to weights files, see engine/model_file.h.
#pragma once

#include "qna/checkpoint/model_file.h"
#include "qna/models/detr.h"

namespace qna::checkpoint {

struct LoadedDetector {
  models::Detr model{nullptr};  // in evaluation mode
  ModelInfo info;
};

void save_detector(const std::string& path, const models::Detr& model, const ModelInfo& info,
                   at::ScalarType dtype = at::kFloat, const NamedTensors& training = {});
engine::Model serving_model(const models::Detr& model, const ModelInfo& info);
LoadedDetector load_detector(const std::string& path);

// Weights to start from: a detector's file (a class head of other classes keeps its initial values,
// and so do object queries of another number), or a classifier's, which fills the backbone: a
// QnA-ViT written by qna, or a ResNet with torchvision's names. The report says what was not
// filled. What does not fit otherwise is a qna::Error.
LoadReport load_detector_weights(models::Detr& model, const std::string& path);

}  // namespace qna::checkpoint
