#include "qna/checkpoint/model_file.h"

#include "qna/base/error.h"
#include "qna/checkpoint/metadata.h"
#include "qna/checkpoint/weight_copy.h"
#include "qna/models/cost.h"

namespace qna::checkpoint {
namespace {

using format::SafetensorsFile;

models::QnAViTConfig read_config(const std::string& path, const SafetensorsFile& file) {
  const nlohmann::json object = read_config_entry(path, file);
  try {
    return models::config_from_json(object);
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
}

// new_head: what of the head does not fit keeps its initial values.
LoadReport copy_weights(models::QnAViT& model, const std::string& path, const SafetensorsFile& file,
                        bool new_head) {
  WeightCopy copy(path, file);
  for (const auto& [name, tensor] : named_tensors(*model)) {
    if (new_head && name.starts_with("head.") && !copy.has(name)) {
      copy.leave(name);
      continue;
    }
    const bool other_classes = new_head && name.starts_with("head.fc.");
    copy.add(name, tensor,
             other_classes ? WeightCopy::OtherRows::kKeepInitial : WeightCopy::OtherRows::kRefuse);
  }
  // A model without a head leaves the file's head alone.
  if (!model->head) copy.ignore([](const auto& name) { return name.starts_with("head."); });
  return copy.finish();
}

}  // namespace

NamedTensors named_tensors(const torch::nn::Module& model) {
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

void save_model(const std::string& path, const models::QnAViT& model, const ModelInfo& info,
                at::ScalarType dtype, const NamedTensors& training) {
  const models::QnAViTConfig& config = model->config();
  const Metadata metadata =
      to_metadata(info, models::to_json(config), config.in_channels, config.classes, "save_model");
  write_model_file(path, *model, dtype, training, metadata, "save_model");
}

LoadedModel load_model(const std::string& path, const LoadOptions& options) {
  const SafetensorsFile file(path);
  check_kind(path, file, FileKind::kClassifier);
  const models::QnAViTConfig written = read_config(path, file);
  LoadedModel loaded;
  loaded.info = read_info(path, file, written.in_channels, written.classes);
  models::QnAViTConfig config = options.config.value_or(written);
  if (options.classes.has_value()) config.classes = *options.classes;
  if (options.image_size.has_value()) config.image_size = *options.image_size;
  check_parameters(path, file, models::total_cost(models::layer_costs(written, 1, 1)).parameters);
  loaded.model = models::QnAViT(config);
  loaded.report = copy_weights(loaded.model, path, file, config.classes != written.classes);
  if (config.classes != written.classes && !loaded.info.labels.empty()) {
    loaded.info.labels.clear();
    loaded.report.push_back("labels: dropped, since the number of classes is another");
  }
  loaded.model->eval();
  return loaded;
}

LoadReport load_weights(models::QnAViT& model, const std::string& path) {
  const SafetensorsFile file(path);
  check(kind_of(path, file) == FileKind::kClassifier,
        "{}: the file holds a detector, whose weights do not fit a classifier", path);
  return copy_weights(model, path, file, /*new_head=*/true);
}

}  // namespace qna::checkpoint
