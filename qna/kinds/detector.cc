// What can be done with a detector: see kind.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "qna/base/file.h"
#include "qna/coco/results.h"
#include "qna/coco/summary.h"
#include "qna/format/text.h"
#include "qna/image/resize.h"
#include "qna/kinds/evaluation.h"
#include "qna/kinds/preview.h"
#include "qna/predict/detection_images.h"
#include "qna/recipe/detection_options.h"

namespace qna::kinds {
namespace {

// Of the detector's classes. They must mean in the annotations what they mean in its file.
std::vector<int64_t> category_ids(const engine::Model& model, const EvaluateOptions& o,
                                  const coco::Annotations& truth, bool has_ids,
                                  const EvaluateWatcher& watcher) {
  const engine::ModelInfo& info = model.info();
  if (!has_ids) {
    check(!info.labels.empty(), "{}: the file does not say the names of its classes",
          model.origin());
    return predict::ids_of(truth.categories);  // those of the names
  }
  const std::vector<int64_t>& ids = info.category_ids;
  check(!ids.empty(), "{}: the file does not say the ids of its classes", model.origin());
  size_t known = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::optional<int64_t> place = truth.find_category(ids[i]);
    if (!place) continue;
    ++known;
    const std::string& name = truth.categories[*place].name;
    if (i < info.labels.size() && name != info.labels[i]) {
      watcher.note(fmt::format("category {} is {} in {}, but {} in {}", ids[i],
                               format::in_quotes(name), o.annotations,
                               format::in_quotes(info.labels[i]), model.origin()));
    }
  }
  check(known > 0, "{}: it has none of the detector's {} categories, such as id {}", o.annotations,
        ids.size(), ids[0]);
  return ids;
}

// Of every category that has objects, in percent.
void add_categories(Measured& measured, const coco::Annotations& truth,
                    const coco::Evaluation& numbers) {
  measured.counted = "objects";
  for (size_t c = 0; c < truth.categories.size(); ++c) {
    const auto place = static_cast<int64_t>(c);
    const auto count =
        std::count_if(truth.annotations.begin(), truth.annotations.end(),
                      [&](const coco::Annotation& each) { return each.category == place; });
    if (coco::mean(numbers, coco::kMeasures[0], place) < 0) continue;
    Measured::Class row{.name = truth.categories[c].name, .count = count};
    for (const int which : {0, 1}) {  // AP, AP50
      const coco::Measure& measure = coco::kMeasures[which];
      row.numbers.push_back({measure.name, 100 * coco::mean(numbers, measure, place), ""});
    }
    measured.classes.push_back(std::move(row));
  }
}

Measured evaluate_detector(const engine::Model& model, const EvaluateOptions& o,
                           const EvaluateWatcher& watcher) {
  check_all_images(model, o);
  check_no_shifts(model, o);
  check(!o.annotations.empty(),
        "{}: this is a detector, so 'annotations' must be given: the objects in the pictures of {}",
        model.origin(), o.data);
  if (!o.results.empty()) check_writable(o.results);
  const bool has_ids = o.annotations.ends_with(".json");  // VOC files have names only
  const auto dataset = std::make_shared<const data::DetectionDataset>(data::DetectionDatasetOptions{
      .images = o.data,
      .annotations = o.annotations,
      .skip_absent = o.skip_broken,
      .class_names = has_ids ? std::vector<std::string>{} : model.info().labels});
  const std::vector<int64_t> ids = category_ids(model, o, dataset->truth(), has_ids, watcher);
  for (const std::string& line : dataset->absent()) watcher.note("left out: " + line);
  const data::LoaderOptions options = loader_options(o, /*usual_batch=*/4);
  data::DetectionLoader loader(dataset, model.info().preprocess, std::nullopt, options);
  engine::Context context(o.threads);
  const predict::DetectorEvaluation result =
      predict::evaluate_detector(model, loader, *dataset, ids, context,
                                 told_in_images(watcher, options.batch, dataset->size()));
  if (!o.results.empty()) coco::write_results(o.results, result.detections);
  Measured measured{.images = result.images, .broken = loader.broken()};
  for (const coco::Measure& measure : coco::kMeasures) {
    const double value = coco::mean(result.numbers, measure);
    measured.numbers.push_back({measure.name, value, coco::summary_line(measure, value)});
  }
  add_categories(measured, dataset->truth(), result.numbers);
  return measured;
}

// With its boxes, small enough that many fit on a sheet.
image::Image with_boxes(const data::DetectionSample& sample,
                        const std::vector<std::string>& labels) {
  constexpr double kSide = 260;
  const image::Image& image = sample.image;
  const double scale = kSide / static_cast<double>(std::max(image.height, image.width));
  const auto side = [&](int64_t length) {
    return std::max<int64_t>(1, std::llround(scale * static_cast<double>(length)));
  };
  const data::DetectionSample small =
      data::resize(sample, side(image.height), side(image.width), image::Filter::kBilinear);
  std::vector<predict::DrawnBox> boxes;
  for (const data::LabelledBox& object : small.objects) {
    boxes.push_back({.label = object.label, .box = object.box, .text = labels[object.label]});
  }
  return predict::draw_boxes(small.image, boxes);
}

Plan plan_detector(const train::Recipe& recipe) {
  const tasks::DetectionTaskOptions options = tasks::detection_options(recipe.sections);
  const data::DetectionDataset dataset(options.train);
  const auto classes = static_cast<int64_t>(dataset.truth().categories.size());
  const config::Preprocess& seen = options.preprocess;
  return {tasks::detector_config(options, classes), dataset.size(), {seen.resize, seen.longest}};
}

Preview preview_detection(const train::Recipe& recipe, const PreviewOptions& o) {
  const tasks::DetectionTaskOptions options = tasks::detection_options(recipe.sections);
  const data::DetectionDataset dataset(options.train);
  const std::vector<std::string>& labels = dataset.classes();
  const bool augments = options.augment.has_value();
  Preview made{
      .columns = augments ? o.variants + 1 : 0,
      .title = fmt::format("{}: {} pictures, {} objects of {} classes", options.train.annotations,
                           dataset.size(), dataset.truth().annotations.size(), labels.size()),
      .subtitle = augments ? "first in each row the picture, then as in the epochs of training"
                           : "all of it, as in training and validation"};
  for (const int64_t index : places(o, dataset.size())) {
    const image::Image image = dataset.read(index);
    const data::DetectionSample sample{image, dataset.objects(index, image.height, image.width)};
    made.cells.push_back({with_boxes(sample, labels),
                          std::filesystem::path(dataset.name(index)).filename().string()});
    if (!augments) continue;
    add_epochs(made, o, recipe, index, [&](Random& random) {
      return with_boxes(data::augment(sample, *options.augment, random), labels);
    });
  }
  return made;
}

void run_detector(const engine::Model& model, const engine::Images& images,
                  engine::Context& context) {
  const auto queries = static_cast<size_t>(images.batch * model.detector().queries);
  std::vector<float> logits(queries * static_cast<size_t>(model.classes() + 1));
  std::vector<float> boxes(queries * 4);
  model.detect(images, {.logits = logits.data(), .boxes = boxes.data()}, context);
}

std::string describe_backbone(const config::DetrConfig& c) {
  std::string name = "QnA-ViT";
  if (const auto* resnet = std::get_if<config::ResNetConfig>(&c.backbone)) {
    name = fmt::format("ResNet-{}{}", resnet->depth, resnet->dilation ? ", dilated" : "");
  }
  return fmt::format("{}, {} features for every {} x {} pixels", name, c.backbone_features(),
                     c.backbone_stride(), c.backbone_stride());
}

std::string describe_transformer(const config::DetrConfig& c) {
  std::string text =
      fmt::format("{} features, {} heads, {} encoder and {} decoder blocks, {} object queries",
                  c.hidden, c.heads, c.encoder_blocks, c.decoder_blocks, c.queries);
  if (c.qna.blocks > 0) {
    text += fmt::format("; {} QnA blocks in the place of {} encoder blocks", c.qna.blocks,
                        c.qna.replaces);
  }
  return text;
}

std::vector<std::string> detector_remarks(const config::NetworkConfig& network) {
  const auto& config = std::get<config::DetrConfig>(network);
  return {"backbone: " + describe_backbone(config), "transformer: " + describe_transformer(config)};
}

}  // namespace

KindRow detector() {
  return {.kind = config::Kind::kDetector,
          .task = "detection",
          .evaluate = evaluate_detector,
          .preview = preview_detection,
          .plan = plan_detector,
          .run = run_detector,
          .remarks = detector_remarks};
}

}  // namespace qna::kinds
