#include "qna/coco/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "qna/base/error.h"
#include "qna/coco/match.h"

namespace qna::coco {
namespace {

struct Ranked {
  const Detection* detection;
  int64_t image;
  int64_t category;
  int64_t rank = 0;  // in its image and category, 0 is the best
  Verdict verdict = {};
};

// The rows of a list by the group they belong to; in a group they keep their order.
struct Groups {
  std::vector<int64_t> begin;  // [groups + 1]
  std::vector<int64_t> rows;

  std::span<int64_t> of(int64_t group) {
    return std::span(rows).subspan(begin[group], begin[group + 1] - begin[group]);
  }
};

template <typename Item, typename GroupOf>
Groups group(const std::vector<Item>& items, int64_t groups, const GroupOf& group_of) {
  Groups out{std::vector<int64_t>(groups + 1), std::vector<int64_t>(items.size())};
  for (const Item& item : items) out.begin[group_of(item) + 1]++;
  for (int64_t g = 0; g < groups; ++g) out.begin[g + 1] += out.begin[g];
  std::vector<int64_t> next = out.begin;
  for (size_t i = 0; i < items.size(); ++i) {
    out.rows[next[group_of(items[i])]++] = static_cast<int64_t>(i);
  }
  return out;
}

// The detections in the order of their images. Those of a category that the ground truth does
// not have are left out.
std::vector<Ranked> by_image(const Annotations& truth, std::span<const Detection> detections) {
  std::vector<Ranked> known;
  known.reserve(detections.size());
  for (size_t i = 0; i < detections.size(); ++i) {
    const Detection& detection = detections[i];
    const Box& box = detection.box;
    const std::optional<int64_t> image = truth.find_image(detection.image_id);
    check(image.has_value(), "evaluate: detection {}: the ground truth has no picture of id {}", i,
          detection.image_id);
    check(std::isfinite(box.x) && std::isfinite(box.y) && std::isfinite(box.width) &&
              std::isfinite(box.height) && std::isfinite(detection.score),
          "evaluate: detection {} must hold finite numbers, got {}, score {}", i, to_text(box),
          detection.score);
    const std::optional<int64_t> category = truth.find_category(detection.category_id);
    if (category.has_value()) known.push_back({&detection, *image, *category});
  }
  std::ranges::stable_sort(known, {}, &Ranked::image);
  return known;
}

// Sorts the detections of one image by category, then from the best on, and judges them. Equal
// scores stay as they are in the file.
class ImageJudge {
 public:
  void judge(const Annotations& truth, std::span<const int64_t> rows, std::span<Ranked> ranked) {
    objects_.clear();
    for (const int64_t row : rows) objects_.push_back(&truth.annotations[row]);
    std::ranges::stable_sort(objects_, {}, &Annotation::category);
    std::ranges::sort(ranked, [](const Ranked& a, const Ranked& b) {
      if (a.category != b.category) return a.category < b.category;
      if (a.detection->score != b.detection->score) return a.detection->score > b.detection->score;
      return a.detection < b.detection;
    });
    for (auto first = ranked.begin(); first != ranked.end();) {
      const int64_t category = first->category;
      const auto last = std::find_if(
          first, ranked.end(), [&](const Ranked& other) { return other.category != category; });
      const auto objects = std::ranges::equal_range(objects_, category, {}, &Annotation::category);
      judge({objects.begin(), objects.end()}, {first, last});
      first = last;
    }
  }

 private:
  void judge(std::span<const Annotation* const> objects, std::span<Ranked> ranked) {
    for (size_t i = 0; i < ranked.size(); ++i) ranked[i].rank = static_cast<int64_t>(i);
    ranked = ranked.first(std::min<size_t>(ranked.size(), kDetectionLimits.back()));
    detections_.clear();
    for (const Ranked& one : ranked) detections_.push_back(one.detection);
    verdicts_.assign(ranked.size(), {});
    matcher_.match(objects, detections_, verdicts_);
    for (size_t i = 0; i < ranked.size(); ++i) ranked[i].verdict = verdicts_[i];
  }

  std::vector<const Annotation*> objects_;
  std::vector<const Detection*> detections_;
  std::vector<Verdict> verdicts_;
  Matcher matcher_;
};

size_t place_of(int64_t category, int area, int threshold) {
  return static_cast<size_t>((category * kAreas + area) * kThresholds + threshold);
}

// Precision and recall of one category, area range and threshold. `best_first`: the rows of the
// category's detections in all images. Recall grows at the detections that are right and
// precision falls in between, so only they matter.
class Accumulator {
 public:
  void accumulate(const std::vector<Ranked>& ranked, std::span<const int64_t> best_first,
                  int64_t objects, int area, int threshold) {
    // numpy.spacing(1), which the protocol adds to the number of detections.
    constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
    precisions_.clear();
    scores_.clear();
    found_ = {};
    double right = 0;
    double wrong = 0;
    for (const int64_t row : best_first) {
      const Ranked& one = ranked[row];
      wrong += one.verdict.wrong[area] >> threshold & 1;
      if ((one.verdict.right[area] >> threshold & 1) == 0) continue;
      right += 1;
      precisions_.push_back(right / (wrong + right + kEpsilon));
      scores_.push_back(one.detection->score);
      for (int i = 0; i < kLimits; ++i) found_[i] += one.rank < kDetectionLimits[i];
    }
    for (size_t i = precisions_.size(); i-- > 1;) {
      precisions_[i - 1] = std::max(precisions_[i - 1], precisions_[i]);
    }
    objects_ = static_cast<double>(objects);
  }

  void write(double* precision, double* scores, double* recall) const {
    size_t i = 0;
    for (int level = 0; level < kRecalls; ++level) {
      while (i < precisions_.size() &&
             static_cast<double>(i + 1) / objects_ < kRecallLevels[level]) {
        ++i;
      }
      precision[level] = i < precisions_.size() ? precisions_[i] : 0;
      scores[level] = i < precisions_.size() ? scores_[i] : 0;
    }
    for (int i = 0; i < kLimits; ++i) recall[i] = static_cast<double>(found_[i]) / objects_;
  }

 private:
  std::vector<double> precisions_;  // at each detection that is right
  std::vector<double> scores_;
  std::array<int64_t, kLimits> found_ = {};
  double objects_ = 0;
};

}  // namespace

std::span<const double> Evaluation::precision_at(int64_t category, Area area, int threshold) const {
  return std::span(precision).subspan(
      kRecalls * place_of(category, static_cast<int>(area), threshold), kRecalls);
}

std::span<const double> Evaluation::scores_at(int64_t category, Area area, int threshold) const {
  return std::span(scores).subspan(kRecalls * place_of(category, static_cast<int>(area), threshold),
                                   kRecalls);
}

double Evaluation::recall_at(int64_t category, Area area, int threshold, int limit) const {
  return recall[kLimits * place_of(category, static_cast<int>(area), threshold) + limit];
}

Evaluation evaluate(const Annotations& truth, std::span<const Detection> detections,
                    Runtime& runtime) {
  const auto images = static_cast<int64_t>(truth.images.size());
  const auto categories = static_cast<int64_t>(truth.categories.size());

  std::vector<Ranked> ranked = by_image(truth, detections);
  Groups objects_of = group(truth.annotations, images, [](const auto& a) { return a.image; });
  const Groups ranked_of = group(ranked, images, [](const auto& one) { return one.image; });
  std::vector<ImageJudge> judges(runtime.workers());
  runtime.for_each(images, [&](int64_t image, int worker) {
    const int64_t begin = ranked_of.begin[image];
    const int64_t count = ranked_of.begin[image + 1] - begin;
    judges[worker].judge(truth, objects_of.of(image), std::span(ranked).subspan(begin, count));
  });

  // One group more for those that are beyond the limit.
  Groups rows_of = group(ranked, categories + 1, [&](const Ranked& one) {
    return one.rank < kDetectionLimits.back() ? one.category : categories;
  });
  runtime.for_each(categories, [&](int64_t category, int) {
    std::ranges::stable_sort(rows_of.of(category), std::greater(),
                             [&](int64_t row) { return ranked[row].detection->score; });
  });

  std::vector<std::array<int64_t, kAreas>> counts(categories);
  for (const Annotation& object : truth.annotations) {
    for (int a = 0; a < kAreas; ++a) {
      counts[object.category][a] += counts_in(object, kAreaRanges[a]);
    }
  }

  const size_t curves = place_of(categories, 0, 0);
  Evaluation out{.categories = categories,
                 .precision = std::vector<double>(curves * kRecalls, -1),
                 .scores = std::vector<double>(curves * kRecalls, -1),
                 .recall = std::vector<double>(curves * kLimits, -1)};
  std::vector<Accumulator> accumulators(runtime.workers());
  runtime.for_each(categories * kAreas, [&](int64_t index, int worker) {
    const int64_t category = index / kAreas;
    const int area = static_cast<int>(index % kAreas);
    const std::span<const int64_t> rows = rows_of.of(category);
    if (counts[category][area] == 0) return;
    for (int t = 0; t < kThresholds; ++t) {
      const size_t place = place_of(category, area, t);
      double* const scores = &out.scores[place * kRecalls];
      accumulators[worker].accumulate(ranked, rows, counts[category][area], area, t);
      accumulators[worker].write(&out.precision[place * kRecalls], scores,
                                 &out.recall[place * kLimits]);
      // A recall of 0 is reached by any detection.
      if (!rows.empty()) scores[0] = ranked[rows[0]].detection->score;
    }
  });
  return out;
}

}  // namespace qna::coco
