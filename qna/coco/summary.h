// The twelve numbers of a COCO evaluation, and the same for one category.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qna/coco/evaluate.h"

namespace qna::coco {

struct Measure {
  const char* name;              // in tables and JSON: "AP50"
  bool is_recall;                // average recall (AR) instead of precision (AP)
  std::optional<int> threshold;  // place in kIouThresholds; nothing: the mean of all
  Area area = Area::kAll;
  int limit = kLimits - 1;  // place in kDetectionLimits
};

inline constexpr std::array<Measure, 12> kMeasures = {{
    {"AP", false, std::nullopt},
    {"AP50", false, 0},
    {"AP75", false, 5},
    {"APs", false, std::nullopt, Area::kSmall},
    {"APm", false, std::nullopt, Area::kMedium},
    {"APl", false, std::nullopt, Area::kLarge},
    {"AR1", true, std::nullopt, Area::kAll, 0},
    {"AR10", true, std::nullopt, Area::kAll, 1},
    {"AR100", true, std::nullopt, Area::kAll, 2},
    {"ARs", true, std::nullopt, Area::kSmall},
    {"ARm", true, std::nullopt, Area::kMedium},
    {"ARl", true, std::nullopt, Area::kLarge},
}};

// The mean over the categories, or of one; -1 where there are no objects that count.
double mean(const Evaluation& evaluation, const Measure& measure,
            std::optional<int64_t> category = std::nullopt);

std::array<double, kMeasures.size()> summarize(const Evaluation& evaluation);

// The line that pycocotools prints:
//  Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.505
std::string summary_line(const Measure& measure, double value);

// The precisions at kRecallLevels, the mean over the categories that have objects; all -1 where
// none has.
std::array<double, kRecalls> mean_curve(const Evaluation& evaluation, int threshold,
                                        Area area = Area::kAll);

}  // namespace qna::coco
