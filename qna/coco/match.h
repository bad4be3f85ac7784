// Which detections of one image and category are right.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "qna/coco/evaluate.h"

namespace qna::coco {

// Of one detection: bit t is of threshold t. What is neither right nor wrong does not count: it
// found a crowd or an object outside the area range, or found nothing and is outside itself.
struct Verdict {
  std::array<uint16_t, kAreas> right = {};
  std::array<uint16_t, kAreas> wrong = {};
};

// Intersection over union; over the detection's own area where the object is a crowd.
double overlap(const Box& detection, const Box& object, bool crowd);

// Whether the object counts in the range: crowds count nowhere.
bool counts_in(const Annotation& object, const AreaRange& range);

// Keeps its memory from call to call: one for each worker.
class Matcher {
 public:
  // The objects as in the file; the detections from the best on, at most kDetectionLimits.back().
  void match(std::span<const Annotation* const> objects,
             std::span<const Detection* const> detections, std::span<Verdict> verdicts);

 private:
  struct Candidate {
    size_t object;
    double overlap;
  };
  void match_in(int area, std::span<const Annotation* const> objects,
                std::span<const Detection* const> detections, std::span<Verdict> verdicts);
  int64_t best_of(std::span<const Candidate> candidates, int threshold, bool counting) const;

  std::vector<Candidate> candidates_;  // of all detections, one behind the other
  std::vector<size_t> ends_;           // where each detection's candidates end
  std::vector<uint16_t> taken_;        // of each object: bit t, it has its detection
  std::vector<bool> counting_;         // of each object
};

}  // namespace qna::coco
