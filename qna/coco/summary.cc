#include "qna/coco/summary.h"

#include <fmt/format.h>

namespace qna::coco {
namespace {

// Of the numbers that are not -1.
class Mean {
 public:
  void add(double value) {
    if (value <= -1) return;
    sum_ += value;
    ++count_;
  }
  double value() const { return count_ == 0 ? -1 : sum_ / static_cast<double>(count_); }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace

double mean(const Evaluation& evaluation, const Measure& measure, std::optional<int64_t> category) {
  const int first_threshold = measure.threshold.value_or(0);
  const int last_threshold = measure.threshold.value_or(kThresholds - 1);
  const int64_t first = category.value_or(0);
  const int64_t last = category.value_or(evaluation.categories - 1);
  Mean mean;
  for (int64_t c = first; c <= last; ++c) {
    for (int t = first_threshold; t <= last_threshold; ++t) {
      if (measure.is_recall) {
        mean.add(evaluation.recall_at(c, measure.area, t, measure.limit));
      } else {
        for (const double value : evaluation.precision_at(c, measure.area, t)) mean.add(value);
      }
    }
  }
  return mean.value();
}

std::array<double, kMeasures.size()> summarize(const Evaluation& evaluation) {
  std::array<double, kMeasures.size()> numbers;
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = mean(evaluation, kMeasures[i]);
  return numbers;
}

std::string summary_line(const Measure& measure, double value) {
  const std::string thresholds =
      measure.threshold.has_value()
          ? fmt::format("{:.2f}", kIouThresholds[*measure.threshold])
          : fmt::format("{:.2f}:{:.2f}", kIouThresholds.front(), kIouThresholds.back());
  return fmt::format(" {:<18} {} @[ IoU={:<9} | area={:>6} | maxDets={:>3} ] = {:.3f}",
                     measure.is_recall ? "Average Recall" : "Average Precision",
                     measure.is_recall ? "(AR)" : "(AP)", thresholds,
                     kAreaRanges[static_cast<int>(measure.area)].name,
                     kDetectionLimits[measure.limit], value);
}

std::array<double, kRecalls> mean_curve(const Evaluation& evaluation, int threshold, Area area) {
  std::array<Mean, kRecalls> means;
  for (int64_t c = 0; c < evaluation.categories; ++c) {
    const std::span<const double> curve = evaluation.precision_at(c, area, threshold);
    for (int level = 0; level < kRecalls; ++level) means[level].add(curve[level]);
  }
  std::array<double, kRecalls> out;
  for (int level = 0; level < kRecalls; ++level) out[level] = means[level].value();
  return out;
}

}  // namespace qna::coco
