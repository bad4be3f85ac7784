// From an image to what a network takes.
#pragma once

#include <vector>

#include "qna/data/preprocess.h"
#include "qna/engine/model.h"
#include "qna/image/image.h"

namespace qna::predict {

// The normalised numbers of one image, which has its size already, see data::fit().
class Input {
 public:
  Input(const image::Image& seen, const config::Preprocess& preprocess);

  // A batch of one; valid as long as this is.
  engine::Images images() const {
    return {.batch = 1, .height = height_, .width = width_, .pixels = pixels_.data()};
  }
  const std::vector<float>& pixels() const { return pixels_; }  // [height, width, channels]

 private:
  int64_t height_;
  int64_t width_;
  std::vector<float> pixels_;
};

}  // namespace qna::predict
