// From a detector's numbers to boxes in pixels.
#pragma once

#include <torch/types.h>

#include <array>
#include <vector>

namespace qna::tasks {

// What was found in one image.
struct Detections {
  torch::Tensor scores;   // [n], probabilities
  torch::Tensor labels;   // [n] int64
  torch::Tensor boxes;    // [n, 4]: left, top, right, bottom in pixels of the original image
  torch::Tensor queries;  // [n] int64: which object query found it
};

struct DetectionOptions {
  double threshold = 0;  // of the score: what lies below is left out
  bool sorted = false;   // by score, the best first; else in the order of the queries
};

// logits [B, queries, classes + 1] and boxes [B, queries, 4] of the last decoder block; sizes: each
// image's height and width before it was resized. One detection per query: its most probable class
// that is an object.
std::vector<Detections> detections(const torch::Tensor& logits, const torch::Tensor& boxes,
                                   const std::vector<std::array<int64_t, 2>>& sizes,
                                   const DetectionOptions& options = {});

}  // namespace qna::tasks
