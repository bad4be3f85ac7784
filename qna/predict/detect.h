// A detector and one image.
#pragma once

#include <array>
#include <vector>

#include "qna/engine/model.h"
#include "qna/image/image.h"
#include "qna/predict/detections.h"
#include "qna/viz/heat_map.h"

namespace qna::predict {

struct FoundObjects {
  Detections found;                             // in pixels of the image
  std::vector<viz::HeatMap> attention = {};     // of each detection: where its query looks
  std::array<double, 2> attention_stride = {};  // pixels of the image per position, down and across
};

// The image has three channels. preprocess: that of the model's file, or one with another size.
// with_attention: otherwise there is none.
FoundObjects find_objects(const engine::Model& model, const image::Image& image,
                          const config::Preprocess& preprocess, const DetectionOptions& options,
                          engine::Context& context, bool with_attention = false);

}  // namespace qna::predict
