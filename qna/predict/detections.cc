#include "qna/predict/detections.h"

#include <algorithm>
#include <cmath>

#include "qna/base/error.h"

namespace qna::predict {
namespace {

bool all_finite(const float* numbers, int64_t count) {
  return std::all_of(numbers, numbers + count, [](float x) { return std::isfinite(x); });
}

// The most probable class that is an object, and its probability.
std::pair<int64_t, float> best_object(const float* logits, int64_t classes) {
  const float* const best = std::max_element(logits, logits + classes);
  const double highest = *std::max_element(logits, logits + classes + 1);
  double sum = 0;
  for (int64_t i = 0; i <= classes; ++i) sum += std::exp(logits[i] - highest);
  return {best - logits, static_cast<float>(std::exp(*best - highest) / sum)};
}

// From centre and size as parts of an image to its pixels.
std::array<double, 4> corners_of(const float* box, std::array<int64_t, 2> size) {
  const auto height = static_cast<float>(size[0]), width = static_cast<float>(size[1]);
  const float half_x = box[2] * 0.5f, half_y = box[3] * 0.5f;
  return {(box[0] - half_x) * width, (box[1] - half_y) * height, (box[0] + half_x) * width,
          (box[1] + half_y) * height};
}

}  // namespace

std::vector<Detections> detections(const BoxPredictions& p,
                                   const std::vector<std::array<int64_t, 2>>& sizes,
                                   const DetectionOptions& options) {
  check(p.batch >= 0 && p.queries >= 1 && p.classes >= 1,
        "detections: batch, queries and classes must be at least 0, 1 and 1, got {}, {} and {}",
        p.batch, p.queries, p.classes);
  check(static_cast<int64_t>(sizes.size()) == p.batch,
        "detections: there must be a size for each of the {} images, got {}", p.batch,
        sizes.size());
  const int64_t rows = p.batch * p.queries;
  check(
      all_finite(p.logits, rows * (p.classes + 1)) && all_finite(p.boxes, rows * 4),
      "detections: the predictions are not finite; are the weights those of a run that diverged?");
  const auto threshold = static_cast<float>(options.threshold);
  std::vector<Detections> result(p.batch);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t image = row / p.queries, query = row % p.queries;
    const auto [label, score] = best_object(p.logits + row * (p.classes + 1), p.classes);
    if (score < threshold) continue;
    result[image].push_back({.score = score,
                             .label = label,
                             .box = corners_of(p.boxes + row * 4, sizes[image]),
                             .query = query});
  }
  if (!options.sorted) return result;
  for (Detections& found : result) {
    std::stable_sort(found.begin(), found.end(),
                     [](const Detection& a, const Detection& b) { return a.score > b.score; });
  }
  return result;
}

}  // namespace qna::predict
