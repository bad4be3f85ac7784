// The numbers of a batch as tensors, without a copy; the batch must stay.
#pragma once

#include <torch/types.h>

#include <vector>

#include "qna/data/loader.h"

namespace qna::tasks {

inline torch::Tensor view_of(const std::vector<float>& numbers, at::IntArrayRef sizes) {
  return torch::from_blob(const_cast<float*>(numbers.data()), sizes, torch::kFloat);
}

// [count, height, width, channels]
inline torch::Tensor images_of(const data::Batch& batch) {
  return view_of(batch.pixels, {batch.count, batch.height, batch.width, batch.channels});
}

}  // namespace qna::tasks
