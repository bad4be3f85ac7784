// From a detector's numbers to boxes in pixels.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace qna::predict {

// One object that was found.
struct Detection {
  double score = 0;  // a probability
  int64_t label = 0;
  std::array<double, 4> box = {0, 0, 0, 0};  // left, top, right, bottom in pixels of the image
  int64_t query = 0;                         // which object query found it
};
using Detections = std::vector<Detection>;  // of one image

struct DetectionOptions {
  double threshold = 0;  // of the score: what lies below is left out
  bool sorted = false;   // by score, the best first; else in the order of the queries
};

// What the last decoder block predicts; see engine::Model::detect().
struct BoxPredictions {
  int64_t batch = 0;
  int64_t queries = 0;
  int64_t classes = 0;            // without "no object"
  const float* logits = nullptr;  // [batch, queries, classes + 1]
  const float* boxes = nullptr;   // [batch, queries, 4]: centre x, centre y, width, height
};

// sizes: each image's height and width before it was resized. One detection per query: its most
// probable class that is an object. Throws qna::Error where a number is not finite.
std::vector<Detections> detections(const BoxPredictions& predictions,
                                   const std::vector<std::array<int64_t, 2>>& sizes,
                                   const DetectionOptions& options = {});

}  // namespace qna::predict
