// What a classifier makes of images, before it decides.
#pragma once

#include <vector>

#include "qna/engine/model.h"

namespace qna::predict {

enum class FeatureKind {
  kPooled,  // one vector per image: what the last product is taken of
  kMap,     // the last stage's map
};

struct Features {
  std::vector<int64_t> shape;  // [batch, features], or [batch, height, width, features]
  std::vector<float> values;
};

Features features(const engine::Model& model, const engine::Images& images, FeatureKind kind,
                  engine::Context& context);

}  // namespace qna::predict
