#include "qna/tasks/classification.h"

#include <torch/types.h>

#include "qna/base/error.h"
#include "qna/config/cost.h"
#include "qna/tasks/batch_tensor.h"
#include "qna/tasks/loading.h"

namespace qna::tasks {
namespace {

using torch::Tensor;

data::LoaderOptions labelled_options(const ClassificationOptions& o, const Run& run, bool training,
                                     int64_t classes) {
  data::LoaderOptions options = loader_options(o.reading, run, training);
  options.classes = classes;
  options.label_smoothing = training ? o.label_smoothing : 0;
  return options;
}

}  // namespace

Classification::Classification(const nlohmann::json& sections, const Run& run)
    : run_(run), options_(classification_options(sections)) {
  model_config(options_, /*classes=*/2);  // a mistake in it shows before the data is read
  data::DatasetOptions data = options_.data;
  data.split = options_.train;
  train_set_ = data::open_dataset(data);
  data.split = options_.val;
  val_set_ = data::open_dataset(data);
  check(train_set_->classes() == val_set_->classes(),
        "{}: the classes of '{}' and '{}' must be the same; there are {} and {}",
        options_.data.path, options_.train, options_.val, train_set_->classes().size(),
        val_set_->classes().size());
  const auto classes = static_cast<int64_t>(train_set_->classes().size());
  labels_ = class_labels(options_, *train_set_);
  model_ = models::QnAViT(model_config(options_, classes));
  if (!options_.weights.empty()) load_report_ = checkpoint::load_weights(model_, options_.weights);
  train_ =
      std::make_unique<data::Loader>(train_set_, options_.preprocess, options_.augment,
                                     options_.mix, labelled_options(options_, run, true, classes));
  val_ = std::make_unique<data::Loader>(val_set_, options_.preprocess, std::nullopt, data::Mix{},
                                        labelled_options(options_, run, false, classes));
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
                  train_set_->size(), val_set_->size(), train_set_->classes().size())};
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
    const Tensor zero = model_->forward(nothing).to(torch::kFloat).sum() * 0;
    model_->train();
    return zero;
  }
  const Tensor images = images_of(batch_).slice(0, first, last);
  const Tensor targets =
      view_of(batch_.targets, {batch_.count, train_->classes()}).slice(0, first, last);
  const Tensor logits = model_->forward(images).to(torch::kFloat);  // [B, classes]
  return -(targets * logits.log_softmax(-1)).sum() / static_cast<double>(batch_.total);
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
  if (labels_ != train_set_->classes()) record["folders"] = train_set_->classes();
  if (options_.data.val_fraction > 0) {
    record["split"] = {{"val_fraction", options_.data.val_fraction},
                       {"split_seed", options_.data.split_seed},
                       {"names", data::fingerprint(*val_set_)}};
  }
  return record;
}

std::vector<std::string> Classification::broken() const { return broken_in(*train_, *val_); }

}  // namespace qna::tasks
