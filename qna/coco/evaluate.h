// The COCO protocol for boxes: the numbers of pycocotools 2.0.11's COCOeval with its default
// parameters, for the same files.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "qna/base/runtime.h"
#include "qna/coco/annotations.h"
#include "qna/coco/results.h"

namespace qna::coco {

// As numpy's linspace does it, to the bit: an overlap or a recall may lie exactly on a number.
template <int count>
constexpr std::array<double, count> evenly_spaced(double first, double last) {
  std::array<double, count> numbers = {};
  const double step = (last - first) / (count - 1);
  for (int i = 0; i < count; ++i) numbers[i] = i * step + first;
  numbers[count - 1] = last;
  return numbers;
}

inline constexpr int kThresholds = 10;
inline constexpr int kRecalls = 101;
inline constexpr int kAreas = 4;
inline constexpr int kLimits = 3;

// Of intersection over union, from which on an object is found: 0.5, 0.55 ... 0.95.
inline constexpr auto kIouThresholds = evenly_spaced<kThresholds>(0.5, 0.95);
inline constexpr auto kRecallLevels = evenly_spaced<kRecalls>(0, 1);
// Detections that count, the best ones of each image and category.
inline constexpr std::array<int64_t, kLimits> kDetectionLimits = {1, 10, 100};

enum class Area { kAll, kSmall, kMedium, kLarge };

// Both ends belong to a range, so an object of 32 x 32 pixels is small and medium.
struct AreaRange {
  const char* name;
  double low;
  double high;
};
inline constexpr std::array<AreaRange, kAreas> kAreaRanges = {{
    {"all", 0, 1e5 * 1e5},
    {"small", 0, 32 * 32},
    {"medium", 32 * 32, 96 * 96},
    {"large", 96 * 96, 1e5 * 1e5},
}};

// Everything is -1 for a category and area without objects that count.
struct Evaluation {
  int64_t categories = 0;
  // [categories, areas, thresholds, recalls], at most 100 detections: the precision at a recall,
  // made to fall with recall, and the lowest score among the detections that it takes to get there.
  std::vector<double> precision;
  std::vector<double> scores;
  // [categories, areas, thresholds, limits]: the part of the objects that is found.
  std::vector<double> recall;

  // The precisions at all recalls: the curve to draw.
  std::span<const double> precision_at(int64_t category, Area area, int threshold) const;
  std::span<const double> scores_at(int64_t category, Area area, int threshold) const;
  double recall_at(int64_t category, Area area, int threshold, int limit) const;
};

// The result does not depend on the number of workers. Throws qna::Error for a detection of an
// image that is not in `truth` or with numbers that are not finite.
Evaluation evaluate(const Annotations& truth, std::span<const Detection> detections,
                    Runtime& runtime);

}  // namespace qna::coco
