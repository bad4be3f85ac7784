// From a picture to a network's input.
#pragma once

#include <torch/types.h>

#include "qna/data/preprocess.h"

namespace qna::tasks {

// Normalised: [1, height, width, channels]. The picture has its size already, see data::fit().
inline torch::Tensor picture_tensor(const image::Image& picture,
                                    const data::Preprocess& preprocess) {
  torch::Tensor x = torch::empty({1, picture.height, picture.width, picture.channels});
  data::to_floats(picture, preprocess, x.data_ptr<float>());
  return x;
}

}  // namespace qna::tasks
