#include "qna/checkpoint/model_file.h"

#include <type_traits>

#include "qna/base/error.h"
#include "qna/checkpoint/module_tensors.h"
#include "qna/checkpoint/weight_copy.h"

namespace qna::checkpoint {
namespace {

format::DType file_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return format::DType::kF32;
    case at::kHalf:
      return format::DType::kF16;
    case at::kBFloat16:
      return format::DType::kBF16;
    default:
      fail("save_model: dtype must be float32, float16 or bfloat16");
  }
}

// To be called before anything is built: a small file cannot ask for a large network.
void check_parameters(const engine::ModelFile& file) {
  double stored = 0;
  for (const format::TensorView& view : file.tensors().tensors()) {
    stored += static_cast<double>(view.bytes.size()) / static_cast<double>(size_of(view.dtype));
  }
  const int64_t wanted = config::learned_count(config::parameters(file.config()));
  // Twice: a missing tensor is for WeightCopy to name.
  check(static_cast<double>(wanted) <= 2 * stored + 1e6,
        "{}: the configuration asks for {} parameters, the file holds {:.0f}", file.origin(),
        wanted, stored);
}

// All tensors, each of its own size.
void copy_all(torch::nn::Module& model, const engine::ModelFile& file) {
  WeightCopy copy(file.origin(), file.tensors());
  for (const auto& [name, tensor] : named_tensors(model)) copy.add(name, tensor);
  const LoadReport report = copy.finish();
  check(report.empty(), "{}: the tensors must fit the file's configuration, but {}", file.origin(),
        report.empty() ? "" : report.front());
}

}  // namespace

NamedTensors named_tensors(const torch::nn::Module& model) {
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

void save_model(const std::string& path, const AnyModel& model, const ModelInfo& info,
                at::ScalarType dtype, const NamedTensors& training) {
  engine::write_model_file(path, model.config, info, ModuleTensors(model.module, training).views(),
                           file_type(dtype), "save_model");
}

engine::Model serving_model(const AnyModel& model, const ModelInfo& info) {
  constexpr const char* kWho = "serving_model";
  const ModuleTensors tensors(model.module);
  auto bytes = std::make_shared<const std::string>(
      engine::model_file_bytes(model.config, info, tensors.views(), format::DType::kF32, kWho));
  return engine::Model(engine::ModelFile::parse(std::move(bytes), kWho));
}

template <typename Model>
Loaded<Model> load_model(const engine::ModelFile& file) {
  using Config = std::remove_cvref_t<decltype(std::declval<Model>()->config())>;
  const Config& config = file.config_as<Config>();
  check_parameters(file);
  Loaded<Model> loaded{.model = Model(config), .info = file.info()};
  copy_all(*loaded.model, file);
  loaded.model->eval();
  return loaded;
}
template Loaded<models::QnAViT> load_model(const engine::ModelFile& file);
template Loaded<models::Detr> load_model(const engine::ModelFile& file);
template Loaded<models::AutoEncoder> load_model(const engine::ModelFile& file);

LoadReport load_weights(models::QnAViT& model, const std::string& path) {
  const engine::ModelFile file = engine::ModelFile::open(path);
  const auto& stages = file.config_as<config::QnAViTConfig>().stages;
  const bool stem_alone =
      stages.size() == 1 && stages[0].attention_blocks + stages[0].qna_blocks == 0;
  WeightCopy copy(file.origin(), file.tensors());
  if (stem_alone) copy.say("stages: not in the file, which is a stem alone; newly initialised");
  for (const auto& [name, tensor] : named_tensors(*model)) {
    if (name.starts_with("stages.") && stem_alone) continue;
    if (name.starts_with("head.") && !copy.has(name)) {
      copy.leave(name);
      continue;
    }
    const bool may_have_other_rows =
        name.starts_with("head.fc.") || (name.starts_with("stem.out.") && stem_alone);
    copy.add(
        name, tensor,
        may_have_other_rows ? WeightCopy::OtherRows::kKeepInitial : WeightCopy::OtherRows::kRefuse);
  }
  // A model without a head leaves the file's head alone.
  if (!model->head) copy.ignore([](const auto& name) { return name.starts_with("head."); });
  return copy.finish();
}

LoadReport load_weights(models::AutoEncoder& model, const std::string& path) {
  const engine::ModelFile file = engine::ModelFile::open(path);
  const auto& config = file.config_as<config::AutoEncoderConfig>();
  check(config == model->config(),
        "{}: the file's auto-encoder has another configuration, {}, than the model, {}", path,
        config::to_json(config).dump(), config::to_json(model->config()).dump());
  copy_all(*model, file);
  return {};
}

}  // namespace qna::checkpoint
