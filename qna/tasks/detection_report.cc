// What the report of a run shows of a detector.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "qna/base/error.h"
#include "qna/coco/match.h"
#include "qna/coco/summary.h"
#include "qna/image/resize.h"
#include "qna/predict/detect.h"
#include "qna/predict/detection_pictures.h"
#include "qna/tasks/detection.h"
#include "qna/viz/draw.h"

namespace qna::tasks {
namespace {

constexpr double kSure = 0.5;     // detections from this score on are shown
constexpr double kOverlap = 0.5;  // and count as right from this overlap on
constexpr size_t kWorst = 12;     // pictures

// One picture: its objects, what was found, and how well both agree.
struct PictureResult {
  int64_t picture = 0;
  std::vector<const coco::Annotation*> objects;
  std::vector<const coco::Detection*> found;
  int64_t hits = 0;

  // F1: 1 where everything was found and nothing else.
  double quality() const {
    const auto all = static_cast<double>(objects.size() + found.size());
    return all == 0 ? 1 : 2 * static_cast<double>(hits) / all;
  }
};

int64_t count_hits(const PictureResult& result, const coco::Annotations& truth) {
  std::vector<bool> taken(result.objects.size(), false);
  int64_t hits = 0;
  for (const coco::Detection* detection : result.found) {
    double best = kOverlap;
    int64_t chosen = -1;
    for (size_t i = 0; i < result.objects.size(); ++i) {
      const coco::Annotation& object = *result.objects[i];
      if (taken[i] || truth.categories[object.category].id != detection->category_id) continue;
      const double overlap = coco::overlap(detection->box, object.box, false);
      if (overlap < best) continue;
      best = overlap;
      chosen = static_cast<int64_t>(i);
    }
    if (chosen < 0) continue;
    taken[chosen] = true;
    ++hits;
  }
  return hits;
}

// All pictures, the worst first.
std::vector<PictureResult> rank_pictures(const coco::Annotations& truth,
                                         const std::vector<coco::Detection>& detections) {
  std::vector<PictureResult> results(truth.pictures.size());
  for (size_t i = 0; i < results.size(); ++i) results[i].picture = static_cast<int64_t>(i);
  for (const coco::Annotation& object : truth.annotations) {
    if (!object.crowd) results[object.picture].objects.push_back(&object);
  }
  for (const coco::Detection& detection : detections) {
    if (detection.score < kSure) continue;
    results[*truth.find_picture(detection.picture_id)].found.push_back(&detection);
  }
  for (PictureResult& result : results) {
    std::stable_sort(result.found.begin(), result.found.end(),
                     [](const auto* a, const auto* b) { return a->score > b->score; });
    result.hits = count_hits(result, truth);
  }
  std::stable_sort(results.begin(), results.end(), [](const auto& a, const auto& b) {
    return a.quality() != b.quality() ? a.quality() < b.quality()
                                      : a.objects.size() > b.objects.size();
  });
  return results;
}

std::array<double, 4> corners(const coco::Box& box) {
  return {box.x, box.y, box.x + box.width, box.y + box.height};
}

// What there is at the left, what was found at the right.
image::Image comparison(const image::Image& photo, const PictureResult& result,
                        const coco::Annotations& truth) {
  std::vector<predict::DrawnBox> objects, found;
  for (const coco::Annotation* object : result.objects) {
    objects.push_back({.label = object->category,
                       .box = corners(object->box),
                       .text = truth.categories[object->category].name});
  }
  for (const coco::Detection* detection : result.found) {
    const int64_t label = *truth.find_category(detection->category_id);
    found.push_back(
        {.label = label,
         .box = corners(detection->box),
         .text = fmt::format("{} {:.0f}", truth.categories[label].name, 100 * detection->score)});
  }
  constexpr int64_t kGap = 8;
  image::Image both = viz::blank(photo.height, 2 * photo.width + kGap, {255, 255, 255});
  viz::paste(both, predict::draw_boxes(photo, objects), 0, 0);
  viz::paste(both, predict::draw_boxes(photo, found), 0, photo.width + kGap);
  return both;
}

report::Curve precision_curve(const std::string& name, std::span<const double> precisions) {
  report::Curve curve{.name = name};
  for (int i = 0; i < coco::kRecalls; ++i) {
    if (precisions[i] < 0) continue;
    curve.x.push_back(coco::kRecallLevels[i]);
    curve.y.push_back(precisions[i]);
  }
  return curve;
}

std::vector<report::Chart> precision_charts(const coco::Evaluation& numbers,
                                            const std::vector<std::string>& classes) {
  const auto chart = [](const std::string& title) {
    return report::Chart{.title = title, .x_label = "recall", .y_label = "precision"};
  };
  std::vector<report::Chart> charts = {chart("Precision and recall, mean over the classes")};
  for (const int threshold : {0, 5, 8}) {
    charts[0].curves.push_back(
        precision_curve(fmt::format("IoU {:.2f}", coco::kIouThresholds[threshold]),
                        coco::mean_curve(numbers, threshold)));
  }
  constexpr size_t kReadable = 8;  // curves in one chart
  if (classes.size() > kReadable) return charts;
  charts.push_back(chart("Precision and recall by class, IoU 0.50"));
  for (size_t i = 0; i < classes.size(); ++i) {
    charts[1].curves.push_back(precision_curve(
        classes[i], numbers.precision_at(static_cast<int64_t>(i), coco::Area::kAll, 0)));
  }
  return charts;
}

}  // namespace

void Detection::add_to_report(report::TrainingReport& report) {
  for (report::Chart& chart : precision_charts(last_.numbers, val_set_->classes())) {
    report.charts.push_back(std::move(chart));
  }
  const coco::Annotations& truth = val_set_->truth();
  report::Gallery worst{
      .title = fmt::format("The worst pictures: what there is, and what was found with a score of "
                           "{:.0f} % and more",
                           100 * kSure),
      .pictures = {}};
  for (const PictureResult& result : rank_pictures(truth, last_.detections)) {
    if (worst.pictures.size() == kWorst) break;
    try {
      const coco::Picture& about = truth.pictures[result.picture];
      image::Image photo = val_set_->read(result.picture);
      if (about.height > 0 && about.width > 0) {  // the boxes are in pixels of this size
        photo = image::resize(photo, about.height, about.width, image::Filter::kBilinear);
      }
      worst.pictures.push_back(
          {comparison(photo, result, truth),
           fmt::format("{}: {} of {} objects found, {} detections", about.file_name, result.hits,
                       result.objects.size(), result.found.size())});
    } catch (const Error&) {
      continue;  // it is in the list of broken ones
    }
  }
  report.galleries.push_back(std::move(worst));
  add_attention(report);
}

// The surest detections of some pictures, spread over the set.
void Detection::add_attention(report::TrainingReport& report) {
  constexpr int64_t kPictures = 4;
  const int64_t count = std::min(kPictures, val_set_->size());
  const engine::Model model = checkpoint::serving_model(model_, info());
  engine::Context context(run_.threads);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t picture = i * val_set_->size() / count;
    try {
      const image::Image photo = val_set_->read(picture);
      const predict::FoundObjects all = predict::find_objects(
          model, photo, options_.preprocess, {.sorted = true}, context, /*with_attention=*/true);
      const predict::DrawnBox box = predict::drawn_box(all.found[0], val_set_->classes());
      report.attention.push_back(
          {predict::draw_query_attention(photo, all.attention[0], all.attention_stride, box),
           val_set_->truth().pictures[picture].file_name + ", " + box.text});
    } catch (const Error&) {
      continue;  // it is in the list of broken ones
    }
  }
}

}  // namespace qna::tasks
