#include "qna/tasks/classification.h"

#include <torch/types.h>

#include "qna/base/error.h"
#include "qna/config/cost.h"
#include "qna/tasks/batch_tensor.h"
#include "qna/tasks/depth.h"
#include "qna/tasks/loading.h"

namespace qna::tasks {
namespace {

using torch::Tensor;

data::LoaderOptions labelled_options(const ClassificationOptions& o, const Run& run, bool training,
                                     int64_t classes) {
  data::LoaderOptions options = loader_options(o.reading, run, training);
  options.classes = classes;
  options.label_smoothing = training ? o.label_smoothing : 0;
  options.temperature = o.teacher.temperature;
  return options;
}

}  // namespace

Classification::Classification(const nlohmann::json& sections, const Run& run)
    : run_(run), options_(classification_options(sections)) {
  model_config(options_, /*classes=*/2);  // a mistake in it shows before the data is read
  open_data();
  const auto count = static_cast<int64_t>(classes().size());
  labels_ = class_labels(options_, classes());
  model_ = models::QnAViT(model_config(options_, count));
  if (!options_.weights.empty()) load_report_ = checkpoint::load_weights(model_, options_.weights);
  if (options_.freeze_stem) model_->freeze_stem();
  if (options_.teacher.features > 0) {
    const size_t last = model_->config().stages.size() - 1;
    projection_ = torch::nn::Linear(model_->config().features(last), teacher_->features());
  }
  train_ = std::make_unique<data::Loader>(train_set_, options_.preprocess, options_.augment,
                                          options_.mix,
                                          labelled_options(options_, run, true, count), teacher_);
  val_ = std::make_unique<data::Loader>(val_set_, options_.preprocess, std::nullopt, data::Mix{},
                                        labelled_options(options_, run, false, count));
}

// The classes are those of the training images' labels; where labels are not used, the teacher's.
const std::vector<std::string>& Classification::classes() const {
  return options_.teacher.labels > 0 ? train_set_->classes() : teacher_->classes();
}

void Classification::open_data() {
  const TeacherOptions& t = options_.teacher;
  if (!t.targets.empty()) teacher_ = std::make_shared<const data::TeacherTargets>(t.targets);
  check(t.features == 0 || teacher_->features() > 0,
        "recipe: teacher.features must be 0, as its targets hold no features, got {}", t.features);
  data::DatasetOptions data = options_.data;
  data.split = options_.train;
  train_set_ = data::open_dataset(data);
  all_images_ = train_set_->size();
  if (has_teacher()) train_set_ = data::seen_by(*teacher_, train_set_);
  data.split = options_.val;
  if (t.labels == 0) data.class_names = teacher_->classes();
  val_set_ = data::open_dataset(data);
  check(classes() == val_set_->classes(),
        "{}: the classes of '{}' and '{}' must be the same; there are {} and {}",
        options_.data.path, options_.train, options_.val, classes().size(),
        val_set_->classes().size());
  check(!has_teacher() || t.logits == 0 || classes() == teacher_->classes(),
        "recipe: teacher.logits must be 0, as the teacher's {} classes are not the {} of {}; or "
        "learn the teacher's classes with teacher.labels = 0",
        teacher_ ? teacher_->classes().size() : 0, classes().size(), options_.data.path);
}

int64_t Classification::depth_of(const std::string& parameter) const {
  if (parameter.starts_with("head.")) return 0;
  return depth_in_body(parameter, static_cast<int64_t>(model_->config().stages.size()));
}

std::vector<std::string> Classification::describe() const {
  const config::QnAViTConfig& config = model_->config();
  const config::Cost cost =
      config::total_cost(config::layer_costs(config, config.image_size[0], config.image_size[1]));
  std::vector<std::string> lines = {
      fmt::format("model  {}, {:.2f} M parameters, {:.3f} GFLOPs at {} x {} pixels", options_.model,
                  static_cast<double>(cost.parameters) / 1e6, cost.flops / 1e9,
                  config.image_size[0], config.image_size[1]),
      fmt::format("data   {}: {} pictures to train, {} to validate, {} classes", options_.data.path,
                  train_set_->size(), val_set_->size(), classes().size())};
  if (train_set_->size() < all_images_) {
    lines.push_back(fmt::format("data   {} pictures without a teacher's answer are left out",
                                all_images_ - train_set_->size()));
  }
  if (!train_set_->left_out().empty()) lines.push_back("data   " + train_set_->left_out());
  for (const std::string& line : load_report_) lines.push_back("weights  " + line);
  return lines;
}

void Classification::start(int64_t epoch, int64_t first_batch) {
  train_->start(epoch, first_batch);
}

int64_t Classification::next() { return go_on(*train_, batch_); }

Tensor Classification::loss(int64_t part, int64_t parts) {
  const int64_t first = batch_.count * part / parts;
  const int64_t last = batch_.count * (part + 1) / parts;
  if (first == last) {
    const std::array<int64_t, 2> size = model_->config().image_size;
    // No image here, but the other processes wait for our gradients: zeros.
    const Tensor nothing = torch::zeros({1, size[0], size[1], options_.preprocess.channels()});
    model_->eval();  // it must not count in the statistics of a BatchNorm
    Tensor zero = model_->forward(nothing).to(torch::kFloat).sum() * 0;
    if (projection_) {
      for (const Tensor& parameter : projection_->parameters()) zero = zero + parameter.sum() * 0;
    }
    model_->train();
    return zero;
  }
  const Tensor images = images_of(batch_).slice(0, first, last);
  const Tensor targets =
      view_of(batch_.targets, {batch_.count, train_->columns()}).slice(0, first, last);
  const Tensor pooled = model_->head->pool(model_->forward_features(images));
  const Tensor logits = model_->head->fc(pooled).to(torch::kFloat);  // [B, classes]
  const Tensor labels = targets.slice(1, 0, train_->classes());
  Tensor sum = -(labels * logits.log_softmax(-1)).sum();
  if (has_teacher()) {
    sum = options_.teacher.labels * sum +
          teacher_loss(targets.slice(1, train_->classes()), pooled, logits);
  }
  return sum / static_cast<double>(batch_.total);
}

// said [B, the teacher's classes and features]; its sum over the images. A broken image has zeros
// there, and counts nothing.
Tensor Classification::teacher_loss(const Tensor& said, const Tensor& pooled,
                                    const Tensor& logits) {
  const TeacherOptions& t = options_.teacher;
  const auto classes = static_cast<int64_t>(teacher_->classes().size());
  Tensor sum = torch::zeros({});
  if (t.logits > 0) {
    const Tensor cooled = (logits / t.temperature).log_softmax(-1);
    // Gradients shrink with the square of the temperature.
    sum =
        sum - t.logits * t.temperature * t.temperature * (said.slice(1, 0, classes) * cooled).sum();
  }
  if (t.features > 0) {
    const Tensor wanted = said.slice(1, classes);
    const Tensor seen = projection_->forward(pooled).to(torch::kFloat);
    const Tensor cosine = torch::cosine_similarity(seen, wanted, /*dim=*/1, /*eps=*/1e-6);
    sum = sum + t.features * ((1 - cosine) * wanted.any(/*dim=*/1)).sum();
  }
  return sum;
}

Metrics Classification::evaluate(const Tell& tell) {
  engine::Context context(run_.threads);
  last_ = predict::evaluate_classifier(serving_model(), *val_, context, evaluation_run(run_, tell));
  Metrics metrics = {{"top1", last_.top1}};
  if (model_->config().classes > 5) metrics.emplace_back("top5", last_.top5);
  metrics.emplace_back("loss", last_.loss);
  return metrics;
}

checkpoint::ModelInfo Classification::info() const {
  return {.name = options_.model, .preprocess = options_.preprocess, .labels = labels_};
}

nlohmann::json Classification::record() const {
  nlohmann::json record = nlohmann::json::object();
  // The names of the folders, by which an evaluation finds the classes.
  if (labels_ != classes()) record["folders"] = classes();
  if (options_.data.keep_classes > 0) record["keep_classes"] = options_.data.keep_classes;
  if (options_.data.val_fraction > 0) {
    record["split"] = {{"val_fraction", options_.data.val_fraction},
                       {"split_seed", options_.data.split_seed},
                       {"names", data::fingerprint(*val_set_)}};
  }
  return record;
}

std::vector<std::string> Classification::broken() const { return broken_in(*train_, *val_); }

}  // namespace qna::tasks
