#include "qna/checkpoint/model_file.h"

#include "qna/checkpoint/module_tensors.h"
#include "qna/checkpoint/weight_copy.h"

namespace qna::checkpoint {
namespace {

// new_head: what of the head does not fit keeps its initial values.
LoadReport copy_weights(models::QnAViT& model, const engine::ModelFile& file, bool new_head) {
  WeightCopy copy(file.origin(), file.tensors());
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
  constexpr const char* kWho = "save_model";
  engine::write_model_file(path, model->config(), info, ModuleTensors(*model, training).views(),
                           file_type(dtype, kWho), kWho);
}

engine::Model serving_model(const models::QnAViT& model, const ModelInfo& info) {
  return serve(model, info, "serving_model");
}

LoadedModel load_model(const std::string& path, const LoadOptions& options) {
  return load_model(engine::ModelFile::open(path), options);
}

LoadedModel load_model(const engine::ModelFile& file, const LoadOptions& options) {
  file.check_kind(engine::Kind::kClassifier);
  check_parameters(file);
  const auto& written = std::get<config::QnAViTConfig>(file.config());
  config::QnAViTConfig config = options.config.value_or(written);
  if (options.classes.has_value()) config.classes = *options.classes;
  if (options.image_size.has_value()) config.image_size = *options.image_size;
  LoadedModel loaded{.model = models::QnAViT(config), .info = file.info(), .report = {}};
  const bool new_head = config.classes != written.classes;
  loaded.report = copy_weights(loaded.model, file, new_head);
  if (new_head && !loaded.info.labels.empty()) {
    loaded.info.labels.clear();
    loaded.report.push_back("labels: dropped, since the number of classes is another");
  }
  loaded.model->eval();
  return loaded;
}

LoadReport load_weights(models::QnAViT& model, const std::string& path) {
  const engine::ModelFile file = engine::ModelFile::open(path);
  file.check_kind(engine::Kind::kClassifier);
  return copy_weights(model, file, /*new_head=*/true);
}

}  // namespace qna::checkpoint
