#include "qna/tasks/detection.h"

#include <fmt/format.h>

#include <cmath>

#include "qna/base/error.h"
#include "qna/coco/summary.h"
#include "qna/format/text.h"
#include "qna/tasks/depth.h"
#include "qna/tasks/detection_batch.h"
#include "qna/tasks/loading.h"

namespace qna::tasks {
namespace {

using torch::Tensor;

// The loss over a whole data set: sums first, their divisors at the end, so that it does not matter
// which images shared a batch.
class LossSum {
 public:
  explicit LossSum(const SetLossOptions& options) : options_(options) {}

  void add(const predict::DetectorOutput& output, const std::vector<BoxTargets>& targets) {
    const auto count = static_cast<int64_t>(targets.size());
    const auto view = [&](const float* numbers, int64_t last) {
      return torch::from_blob(const_cast<float*>(numbers),
                              {output.blocks, count, output.queries, last}, torch::kFloat);
    };
    const SetLoss loss = set_loss(view(output.logits, output.classes + 1), view(output.boxes, 4),
                                  targets, options_, SetLossScale{.objects = 1, .predictions = 1});
    for (const SetLossTerms& terms : loss.terms) {
      sums_[0] += options_.class_weight * terms.classes.item<double>();
      sums_[1] += options_.box_weight * terms.boxes.item<double>() +
                  options_.giou_weight * terms.giou.item<double>();
    }
    const SetLossScale scale = set_loss_scale(targets, output.queries, options_);
    sums_[2] += scale.predictions;
    sums_[3] += scale.objects;
  }

  double mean(const Run& run) {
    run.sum(sums_);
    const auto at = [&](int64_t i) { return sums_[i].item<double>(); };
    return at(0) / at(2) + at(1) / std::max(1.0, at(3));
  }

 private:
  const SetLossOptions& options_;
  Tensor sums_ = torch::zeros({4}, torch::kDouble);  // classes, boxes; their divisors
};

// The first difference between the categories of two sets, for people.
std::string difference(const coco::Annotations& a, const coco::Annotations& b) {
  const auto text = [](const coco::Annotations& set, size_t i) {
    if (i >= set.categories.size()) return std::string("none");
    return fmt::format("{} (id {})", format::in_quotes(set.categories[i].name),
                       set.categories[i].id);
  };
  size_t i = 0;
  while (i < a.categories.size() && text(a, i) == text(b, i)) ++i;
  return fmt::format("number {} is {} and {}; of VOC files, give data.class_names", i + 1,
                     text(a, i), text(b, i));
}

std::shared_ptr<const data::DetectionDataset> open(const data::DetectionDatasetOptions& options) {
  const auto dataset = std::make_shared<const data::DetectionDataset>(options);
  check(!dataset->truth().annotations.empty(), "{}: there are no objects in it",
        options.annotations);
  return dataset;
}

// Of all predictions, for losses that are none: every parameter has a part in it.
Tensor sum_of(const models::DetrOutput& output) {
  return (output.logits.sum() + output.boxes.sum()).to(torch::kFloat);
}

}  // namespace

Detection::Detection(const nlohmann::json& sections, const Run& run)
    : run_(run), options_(detection_options(sections)) {
  detector_config(options_, /*classes=*/1);  // a mistake in it shows before the data is read
  train_set_ = open(options_.train);
  val_set_ = open(options_.val);
  category_ids_ = predict::ids_of(train_set_->truth().categories);
  check(category_ids_ == predict::ids_of(val_set_->truth().categories) &&
            train_set_->classes() == val_set_->classes(),
        "{} and {} must have the same categories, but {}", options_.train.annotations,
        options_.val.annotations, difference(train_set_->truth(), val_set_->truth()));
  model_ = models::Detr(detector_config(options_, static_cast<int64_t>(category_ids_.size())));
  load();
  freeze();
  train_ =
      std::make_unique<data::DetectionLoader>(train_set_, options_.preprocess, options_.augment,
                                              loader_options(options_.reading, run, true));
  val_ = std::make_unique<data::DetectionLoader>(val_set_, options_.preprocess, std::nullopt,
                                                 loader_options(options_.reading, run, false));
}

void Detection::load() {
  for (const std::string& file : {options_.backbone, options_.weights}) {
    if (file.empty()) continue;
    for (const std::string& line : checkpoint::load_weights(model_, file, train_set_->classes())) {
      load_report_.push_back(line);
    }
  }
}

void Detection::freeze() {
  if (options_.freeze == Freeze::kNone) return;
  models::BackboneImpl& backbone = model_->backbone();
  if (options_.freeze == Freeze::kFirstStage) return backbone.freeze_first_stage();
  backbone.freeze();
}

int64_t Detection::depth_of(const std::string& parameter) const {
  const std::string body = "backbone.0.body.";
  if (!parameter.starts_with(body)) return 0;
  const auto* qna_vit = std::get_if<config::QnAViTConfig>(&model_->config().backbone);
  constexpr int64_t kResNetStages = 4;
  return depth_in_body(
      parameter.substr(body.size()),
      qna_vit == nullptr ? kResNetStages : static_cast<int64_t>(qna_vit->stages.size()));
}

std::vector<std::string> Detection::describe() const {
  int64_t parameters = 0;
  for (const torch::Tensor& parameter : model_->parameters()) parameters += parameter.numel();
  std::vector<std::string> lines = {
      fmt::format("model  {}, {:.2f} M parameters, {} object queries", options_.model,
                  static_cast<double>(parameters) / 1e6, model_->config().queries),
      fmt::format("data   {}: {} pictures to train with {} boxes, {} to validate with {}, {} {}",
                  options_.path, train_set_->size(), train_set_->truth().annotations.size(),
                  val_set_->size(), val_set_->truth().annotations.size(), category_ids_.size(),
                  category_ids_.size() == 1 ? "class" : "classes")};
  for (const auto& set : {train_set_, val_set_}) {
    if (set->absent().empty()) continue;
    lines.push_back(fmt::format("data   {} pictures are absent and left out, such as {}",
                                set->absent().size(), set->absent().front()));
  }
  for (const std::string& line : load_report_) lines.push_back("weights  " + line);
  return lines;
}

void Detection::start(int64_t epoch, int64_t first_batch) { train_->start(epoch, first_batch); }

int64_t Detection::next() {
  const int64_t images = go_on(*train_, batch_);
  const DetectorInput input = detector_input(batch_, 0, batch_.count);
  scale_ = set_loss_scale(input.targets, model_->config().queries, options_.loss);
  Tensor shared = torch::tensor({scale_.objects, scale_.predictions}, torch::kDouble);
  run_.sum(shared);
  scale_ = {.objects = shared[0].item<double>(), .predictions = shared[1].item<double>()};
  return images;
}

Tensor Detection::loss(int64_t part, int64_t parts) {
  const DetectorInput input =
      detector_input(batch_, batch_.count * part / parts, batch_.count * (part + 1) / parts);
  if (input.slots.empty()) {
    // No image here, but the other processes wait for our gradients: zeros.
    return sum_of(model_->forward(torch::zeros({1, 64, 64, 3}))) * 0;
  }
  const models::DetrOutput output = model_->forward(input.images, input.mask);
  const Tensor sum = sum_of(output);
  // Nothing can be matched then; every process learns by the gradients to leave the step out.
  if (!std::isfinite(sum.item<double>())) return sum * std::nan("");
  return set_loss(output.logits.to(torch::kFloat), output.boxes.to(torch::kFloat), input.targets,
                  options_.loss, scale_)
      .total;
}

Metrics Detection::evaluate(const Tell& tell) {
  LossSum loss(options_.loss);
  const auto see = [&](const data::DetectionBatch& batch, const predict::DetectorOutput& output) {
    loss.add(output, targets_of(batch, output.slots));
  };
  engine::Context context(run_.threads);
  last_ = predict::evaluate_detector(serving_model(), *val_, *val_set_, category_ids_, context,
                                     evaluation_run(run_, tell), see);
  Metrics metrics;
  for (const coco::Measure& measure : coco::kMeasures) {
    const double value = coco::mean(last_.numbers, measure);
    // -1: there are no objects of that size.
    if (value >= 0 && !measure.is_recall) metrics.emplace_back(measure.name, 100 * value);
  }
  check(!metrics.empty(), "{}: there are no objects to find but crowds", options_.val.annotations);
  metrics.emplace_back("loss", loss.mean(run_));
  return metrics;
}

checkpoint::ModelInfo Detection::info() const {
  return {.name = options_.model,
          .preprocess = options_.preprocess,
          .labels = train_set_->classes(),
          .category_ids = category_ids_};
}

std::vector<std::string> Detection::broken() const { return broken_in(*train_, *val_); }

}  // namespace qna::tasks
