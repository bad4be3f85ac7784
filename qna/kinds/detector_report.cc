// What the report of a run shows of a detector.
#include <fmt/format.h>

#include <algorithm>

#include "qna/base/error.h"
#include "qna/coco/match.h"
#include "qna/coco/summary.h"
#include "qna/image/resize.h"
#include "qna/kinds/run_report.h"
#include "qna/predict/detect.h"
#include "qna/predict/detection_images.h"
#include "qna/viz/draw.h"

namespace qna::kinds {
namespace {

constexpr double kSure = 0.5;     // detections from this score on are shown
constexpr double kOverlap = 0.5;  // and count as right from this overlap on
constexpr size_t kWorst = 12;     // images

// One image: its objects, what was found, and how well both agree.
struct ImageResult {
  int64_t index = 0;  // of the image
  std::vector<const coco::Annotation*> objects;
  std::vector<const coco::Detection*> found;
  int64_t hits = 0;

  // F1: 1 where everything was found and nothing else.
  double quality() const {
    const auto all = static_cast<double>(objects.size() + found.size());
    return all == 0 ? 1 : 2 * static_cast<double>(hits) / all;
  }
};

int64_t count_hits(const ImageResult& result, const coco::Annotations& truth) {
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

// All images, the worst first.
std::vector<ImageResult> rank_images(const coco::Annotations& truth,
                                     const std::vector<coco::Detection>& detections) {
  std::vector<ImageResult> results(truth.images.size());
  for (size_t i = 0; i < results.size(); ++i) results[i].index = static_cast<int64_t>(i);
  for (const coco::Annotation& object : truth.annotations) {
    if (!object.crowd) results[object.image].objects.push_back(&object);
  }
  for (const coco::Detection& detection : detections) {
    if (detection.score < kSure) continue;
    results[*truth.find_image(detection.image_id)].found.push_back(&detection);
  }
  for (ImageResult& result : results) {
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
image::Image comparison(const image::Image& image, const ImageResult& result,
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
  image::Image both = viz::blank(image.height, 2 * image.width + kGap, {255, 255, 255});
  viz::paste(both, predict::draw_boxes(image, objects), 0, 0);
  viz::paste(both, predict::draw_boxes(image, found), 0, image.width + kGap);
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

// The surest detections of some images, spread over the set.
void add_attention(report::TrainingReport& report, const engine::Model& model,
                   const data::DetectionDataset& val, engine::Context& context) {
  constexpr int64_t kImages = 4;
  const int64_t count = std::min(kImages, val.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = i * val.size() / count;
    try {
      const image::Image image = val.read(index);
      const predict::FoundObjects all =
          predict::find_objects(model, image, model.info().preprocess, {.sorted = true}, context,
                                /*with_attention=*/true);
      const predict::DrawnBox box = predict::drawn_box(all.found[0], val.classes());
      report.attention.push_back(
          {predict::draw_query_attention(image, all.attention[0], all.attention_stride, box),
           val.truth().images[index].file_name + ", " + box.text});
      add_explorer(report, model, val.truth().images[index].file_name, image,
                   data::fit(image, model.info().preprocess), context);
    } catch (const Error&) {
      continue;  // it is in the list of broken ones
    }
  }
}

}  // namespace

void add_to_report(report::TrainingReport& report, const engine::Model& model,
                   const predict::DetectorEvaluation& last, const data::DetectionDataset& val,
                   engine::Context& context) {
  for (report::Chart& chart : precision_charts(last.numbers, val.classes())) {
    report.charts.push_back(std::move(chart));
  }
  const coco::Annotations& truth = val.truth();
  report::Gallery worst{
      .title = fmt::format("The worst pictures: what there is, and what was found with a score of "
                           "{:.0f} % and more",
                           100 * kSure),
      .images = {}};
  for (const ImageResult& result : rank_images(truth, last.detections)) {
    if (worst.images.size() == kWorst) break;
    try {
      const coco::Image& about = truth.images[result.index];
      image::Image image = val.read(result.index);
      if (about.height > 0 && about.width > 0) {  // the boxes are in pixels of this size
        image = image::resize(image, about.height, about.width, image::Filter::kBilinear);
      }
      worst.images.push_back(
          {comparison(image, result, truth),
           fmt::format("{}: {} of {} objects found, {} detections", about.file_name, result.hits,
                       result.objects.size(), result.found.size())});
    } catch (const Error&) {
      continue;  // it is in the list of broken ones
    }
  }
  report.galleries.push_back(std::move(worst));
  add_attention(report, model, val, context);
}

}  // namespace qna::kinds
