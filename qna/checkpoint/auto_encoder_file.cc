#include "qna/checkpoint/auto_encoder_file.h"

#include "qna/base/error.h"
#include "qna/checkpoint/module_tensors.h"
#include "qna/checkpoint/weight_copy.h"

namespace qna::checkpoint {
namespace {

engine::ModelFile open_file(const std::string& path) {
  engine::ModelFile file = engine::ModelFile::open(path);
  file.check_kind(engine::Kind::kAutoEncoder);
  return file;
}

const config::AutoEncoderConfig& config_of(const engine::ModelFile& file) {
  return std::get<config::AutoEncoderConfig>(file.config());
}

void copy_all(models::AutoEncoder& model, const engine::ModelFile& file) {
  WeightCopy copy(file.origin(), file.tensors());
  for (const auto& [name, tensor] : named_tensors(*model)) copy.add(name, tensor);
  copy.finish();
}

}  // namespace

void save_auto_encoder(const std::string& path, const models::AutoEncoder& model,
                       const ModelInfo& info, at::ScalarType dtype, const NamedTensors& training) {
  constexpr const char* kWho = "save_auto_encoder";
  engine::write_model_file(path, model->config(), info, ModuleTensors(*model, training).views(),
                           file_type(dtype, kWho), kWho);
}

engine::Model serving_model(const models::AutoEncoder& model, const ModelInfo& info) {
  return serve(model, info, "serving_model");
}

LoadedAutoEncoder load_auto_encoder(const std::string& path) {
  const engine::ModelFile file = open_file(path);
  check_parameters(file);
  LoadedAutoEncoder loaded{.model = models::AutoEncoder(config_of(file)), .info = file.info()};
  copy_all(loaded.model, file);
  loaded.model->eval();
  return loaded;
}

void load_auto_encoder_weights(models::AutoEncoder& model, const std::string& path) {
  const engine::ModelFile file = open_file(path);
  check(config_of(file) == model->config(),
        "{}: the file's auto-encoder has another configuration, {}, than the model, {}", path,
        config::to_json(config_of(file)).dump(), config::to_json(model->config()).dump());
  copy_all(model, file);
}

}  // namespace qna::checkpoint
