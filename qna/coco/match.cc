#include "qna/coco/match.h"

#include <cmath>

namespace qna::coco {

double overlap(const Box& detection, const Box& object, bool crowd) {
  const double width = std::fmin(detection.width + detection.x, object.width + object.x) -
                       std::fmax(detection.x, object.x);
  if (width <= 0) return 0;
  const double height = std::fmin(detection.height + detection.y, object.height + object.y) -
                        std::fmax(detection.y, object.y);
  if (height <= 0) return 0;
  const double both = width * height;
  return both / (crowd ? detection.area() : detection.area() + object.area() - both);
}

bool counts_in(const Annotation& object, const AreaRange& range) {
  return !object.crowd && object.area >= range.low && object.area <= range.high;
}

void Matcher::match(std::span<const Annotation* const> objects,
                    std::span<const Detection* const> detections, std::span<Verdict> verdicts) {
  candidates_.clear();
  ends_.clear();
  // Few pairs overlap enough for the lowest threshold, and the others can never match. "Not less"
  // instead of "at least": the overlap of two boxes whose areas underflow is not a number, which
  // pycocotools takes for a match.
  for (const Detection* detection : detections) {
    for (size_t i = 0; i < objects.size(); ++i) {
      const double value = overlap(detection->box, objects[i]->box, objects[i]->crowd);
      if (!(value < kIouThresholds[0])) candidates_.push_back({i, value});
    }
    ends_.push_back(candidates_.size());
  }
  for (int area = 0; area < kAreas; ++area) match_in(area, objects, detections, verdicts);
}

void Matcher::match_in(int area, std::span<const Annotation* const> objects,
                       std::span<const Detection* const> detections, std::span<Verdict> verdicts) {
  const AreaRange& range = kAreaRanges[area];
  taken_.assign(objects.size(), 0);
  counting_.resize(objects.size());
  for (size_t i = 0; i < objects.size(); ++i) counting_[i] = counts_in(*objects[i], range);

  size_t begin = 0;
  for (size_t d = 0; d < detections.size(); ++d) {
    const auto candidates = std::span(candidates_).subspan(begin, ends_[d] - begin);
    begin = ends_[d];
    const double size = detections[d]->box.area();
    const bool outside = size < range.low || size > range.high;
    for (int t = 0; t < kThresholds; ++t) {
      const uint16_t bit = static_cast<uint16_t>(1u << t);
      // What does not count is only for detections that find nothing else.
      int64_t found = best_of(candidates, t, /*counting=*/true);
      if (found < 0) found = best_of(candidates, t, /*counting=*/false);
      if (found < 0) {
        if (!outside) verdicts[d].wrong[area] |= bit;
        continue;
      }
      if (!objects[found]->crowd) taken_[found] |= bit;  // a crowd has room for many
      if (!counting_[found]) continue;
      // pycocotools keeps the id of the object found, and 0 for none. So it takes a detection of
      // an object with the id 0 for one that found nothing, and so do we.
      if (objects[found]->id != 0) {
        verdicts[d].right[area] |= bit;
      } else if (!outside) {
        verdicts[d].wrong[area] |= bit;
      }
    }
  }
}

// The candidate of the largest overlap that is still free, the last of equal ones; -1: none.
int64_t Matcher::best_of(std::span<const Candidate> candidates, int threshold,
                         bool counting) const {
  int64_t best = -1;
  double least = kIouThresholds[threshold];
  for (const Candidate& candidate : candidates) {
    if (counting_[candidate.object] != counting) continue;
    if ((taken_[candidate.object] >> threshold & 1) != 0 || candidate.overlap < least) continue;
    least = candidate.overlap;
    best = static_cast<int64_t>(candidate.object);
  }
  return best;
}

}  // namespace qna::coco
