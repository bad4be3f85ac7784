#include "qna/checkpoint/auto_encoder_file.h"

#include "qna/base/error.h"
#include "qna/checkpoint/metadata.h"
#include "qna/checkpoint/weight_copy.h"

namespace qna::checkpoint {
namespace {

using format::SafetensorsFile;

models::AutoEncoderConfig read_config(const std::string& path, const SafetensorsFile& file) {
  try {
    return models::auto_encoder_config_from_json(read_config_entry(path, file));
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
}

void copy_all(models::AutoEncoder& model, const std::string& path, const SafetensorsFile& file) {
  WeightCopy copy(path, file);
  for (const auto& [name, tensor] : named_tensors(*model)) copy.add(name, tensor);
  copy.finish();
}

}  // namespace

bool is_auto_encoder_file(const std::string& path) {
  const SafetensorsFile file(path);
  return kind_of(path, file) == FileKind::kAutoEncoder;
}

void save_auto_encoder(const std::string& path, const models::AutoEncoder& model,
                       const AutoEncoderInfo& info, at::ScalarType dtype,
                       const NamedTensors& training) {
  const models::AutoEncoderConfig& config = model->config();
  const ModelInfo common{
      .name = info.name, .preprocess = info.preprocess, .labels = {}, .training = info.training};
  Metadata metadata = to_metadata(common, models::to_json(config), config.channels, /*classes=*/0,
                                  "save_auto_encoder");
  metadata["kind"] = "auto-encoder";
  write_model_file(path, *model, dtype, training, metadata, "save_auto_encoder");
}

LoadedAutoEncoder load_auto_encoder(const std::string& path) {
  const SafetensorsFile file(path);
  check_kind(path, file, FileKind::kAutoEncoder);
  const models::AutoEncoderConfig config = read_config(path, file);
  const ModelInfo common = read_info(path, file, config.channels, /*classes=*/0);
  check_parameters(path, file, models::parameter_count(config));
  LoadedAutoEncoder loaded{
      .model = models::AutoEncoder(config),
      .info = {.name = common.name, .preprocess = common.preprocess, .training = common.training}};
  copy_all(loaded.model, path, file);
  loaded.model->eval();
  return loaded;
}

void load_auto_encoder_weights(models::AutoEncoder& model, const std::string& path) {
  const SafetensorsFile file(path);
  check_kind(path, file, FileKind::kAutoEncoder);
  const models::AutoEncoderConfig config = read_config(path, file);
  check(config == model->config(),
        "{}: the file's auto-encoder has another configuration, {}, than the model, {}", path,
        models::to_json(config).dump(), models::to_json(model->config()).dump());
  copy_all(model, path, file);
}

}  // namespace qna::checkpoint
