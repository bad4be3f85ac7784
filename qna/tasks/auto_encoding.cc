#include "qna/tasks/auto_encoding.h"

#include <fmt/format.h>

#include <algorithm>

#include "qna/base/error.h"
#include "qna/data/image_dataset.h"
#include "qna/tasks/batch_tensor.h"

namespace qna::tasks {
namespace {

using torch::Tensor;

// The images of a batch that could be read.
Tensor readable(const data::Batch& batch, int64_t first, int64_t last) {
  std::vector<int64_t> slots;
  for (int64_t i = first; i < last; ++i) {
    if (batch.labels[i] >= 0) slots.push_back(i);
  }
  const Tensor all = images_of(batch);
  if (static_cast<int64_t>(slots.size()) == last - first) return all.slice(0, first, last);
  return all.index_select(0, torch::tensor(slots, torch::kLong));
}

// From a network's numbers to 0 .. 1.
Tensor to_unit(const Tensor& x, const config::Preprocess& preprocess) {
  return x.to(torch::kFloat) * torch::tensor(preprocess.std) + torch::tensor(preprocess.mean);
}

}  // namespace

AutoEncoding::AutoEncoding(const nlohmann::json& sections, const Run& run)
    : run_(run), options_(auto_encoding_options(sections)) {
  const auto whole = std::make_shared<data::ImageDataset>(options_.path);
  check(options_.val_count >= 1 && options_.val_count < whole->size(),
        "recipe: data.val_count must be from 1 to {}, since {} has {} pictures, got {}",
        whole->size() - 1, options_.path, whole->size(), options_.val_count);
  const data::HeldBack sets = data::hold_back(whole, options_.val_count);
  train_set_ = sets.train;
  val_set_ = sets.val;
  model_ = models::AutoEncoder(options_.config);
  if (!options_.weights.empty()) checkpoint::load_weights(model_, options_.weights);
  const auto loader = [&](const auto& set, bool training) {
    return std::make_unique<data::Loader>(set, options_.preprocess, std::nullopt, data::Mix{},
                                          loader_options(options_.reading, run, training));
  };
  train_ = loader(train_set_, true);
  val_ = loader(val_set_, false);
}

std::vector<std::string> AutoEncoding::describe() const {
  const int64_t parameters = config::parameter_count(options_.config);
  const auto config = config::to_json(options_.config);
  const auto& size = options_.preprocess.crop;
  std::vector<std::string> lines = {
      fmt::format("model  auto-encoder {} / {}, {:.2f} M parameters, code 1/{} of {} x {} pixels",
                  config["encoder"].get<std::string>(), config["decoder"].get<std::string>(),
                  static_cast<double>(parameters) / 1e6, options_.config.stride(), size[0],
                  size[1]),
      fmt::format("data   {}: {} pictures to train, {} to validate", options_.path,
                  train_set_->size(), val_set_->size())};
  if (!train_set_->left_out().empty()) lines.push_back("data   " + train_set_->left_out());
  return lines;
}

Tensor AutoEncoding::loss(int64_t part, int64_t parts) {
  const Tensor images =
      readable(batch_, batch_.count * part / parts, batch_.count * (part + 1) / parts);
  if (images.size(0) == 0) {
    // No image here, but the other processes wait for our gradients: zeros.
    const auto& size = options_.preprocess.crop;
    return model_->forward(torch::zeros({1, size[0], size[1], options_.config.channels})).sum() * 0;
  }
  const Tensor made = to_unit(model_->forward(images), options_.preprocess);
  const Tensor wanted = to_unit(images, options_.preprocess);
  const double numbers = static_cast<double>(images[0].numel());
  return (made - wanted).abs().sum() / (numbers * static_cast<double>(batch_.total));
}

Metrics AutoEncoding::evaluate(const Tell& tell) {
  engine::Context context(run_.threads);
  return predict::metrics_of(predict::evaluate_auto_encoder(
      serving_model(), *val_, options_.preprocess, context, evaluation_run(run_, tell)));
}

}  // namespace qna::tasks
