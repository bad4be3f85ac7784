// A detector and one photo.
#pragma once

#include "qna/data/preprocess.h"
#include "qna/image/image.h"
#include "qna/models/detr.h"
#include "qna/tasks/detections.h"

namespace qna::tasks {

struct FoundObjects {
  Detections found;                             // in pixels of the photo
  torch::Tensor attention = {};                 // [n, h, w]: where each detection's query looks
  std::array<double, 2> attention_stride = {};  // pixels of the photo per position, down and across
};

// The model must be in evaluation mode. with_attention: otherwise there is none.
FoundObjects find_objects(models::Detr& model, const image::Image& photo,
                          const data::Preprocess& preprocess, const DetectionOptions& options,
                          bool with_attention = false);

}  // namespace qna::tasks
