#include "qna/checkpoint/model_file.h"

#include <algorithm>
#include <set>

#include "qna/base/error.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/format/fields.h"
#include "qna/format/safetensors.h"
#include "qna/models/cost.h"
#include "qna/ops/geometry.h"

namespace qna::checkpoint {
namespace {

using format::SafetensorsFile;
using nlohmann::json;

constexpr const char* kFormat = "qna-1";

json parse(const std::string& path, const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return nullptr;
  return format::parse_json(found->second, fmt::format("{}: the metadata entry '{}'", path, key));
}

models::QnAViTConfig read_config(const std::string& path, const SafetensorsFile& file) {
  const json object = parse(path, file, "config");
  check(!object.is_null(),
        "{}: there is no model configuration in the file's metadata; was it written by qna?", path);
  try {
    return models::config_from_json(object);
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
}

ModelInfo read_info(const std::string& path, const SafetensorsFile& file,
                    const models::QnAViTConfig& config) {
  ModelInfo info;
  const auto name = file.metadata().find("name");
  if (name != file.metadata().end()) info.name = name->second;
  const json preprocess = parse(path, file, "preprocess");
  if (!preprocess.is_null()) {
    info.preprocess = data::preprocess_from_json(preprocess, path);
  }
  check(preprocess.is_null() || info.preprocess.channels() == config.in_channels,
        "{}: the model takes {} channels, its preprocessing makes {}", path, config.in_channels,
        info.preprocess.channels());
  const json labels = parse(path, file, "labels");
  if (!labels.is_null()) {
    const bool strings = labels.is_array() && std::all_of(labels.begin(), labels.end(),
                                                          [](auto& l) { return l.is_string(); });
    check(strings, "{}: labels must be a list of strings", path);
    check(labels.empty() || static_cast<int64_t>(labels.size()) == config.classes,
          "{}: there are {} labels for {} classes", path, labels.size(), config.classes);
    info.labels = labels.get<std::vector<std::string>>();
  }
  info.training = parse(path, file, "training");
  return info;
}

// A tensor of the file for a parameter of another size; undefined where there is no way.
torch::Tensor fit(const std::string& name, const torch::Tensor& from, const torch::Tensor& to) {
  if (from.dim() != to.dim()) return {};
  if (name.ends_with("attention.relative_bias") && from.size(2) == to.size(2) &&
      from.size(0) % 2 == 1 && from.size(1) % 2 == 1) {
    return nn::resize_relative_bias(from, {(to.size(0) + 1) / 2, (to.size(1) + 1) / 2});
  }
  if (name.starts_with("head.qna.") && from.dim() == 4 && from.size(2) == to.size(2) &&
      from.size(3) == to.size(3)) {
    return models::resize_window_table(from, {to.size(0), to.size(1)});
  }
  return {};
}

// new_head: what of the head does not fit keeps its initial values.
LoadReport copy_weights(models::QnAViT& model, const std::string& path, const SafetensorsFile& file,
                        bool new_head) {
  torch::NoGradGuard no_grad;
  LoadReport report;
  std::set<std::string> used;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies;  // only when all fit
  const auto tensors = named_tensors(*model);
  for (const auto& [name, tensor] : tensors) {
    const format::TensorView* view = file.find(name);
    if (view == nullptr && new_head && name.starts_with("head.")) {
      report.push_back(fmt::format("{}: not in the file, newly initialised", name));
      continue;
    }
    check(view != nullptr, "{}: there is no tensor '{}', which the model needs", path, name);
    used.insert(name);
    torch::Tensor from = tensor_from(*view, path);
    torch::Tensor to = tensor;
    if (from.sizes() != to.sizes()) {
      const std::string sizes =
          fmt::format("{} -> {}", ops::sizes_text(from.sizes()), ops::sizes_text(to.sizes()));
      const bool other_classes = new_head && name.starts_with("head.fc.") &&
                                 from.dim() == to.dim() &&
                                 from.sizes().slice(1) == to.sizes().slice(1);
      if (other_classes) {
        report.push_back(fmt::format("{}: {}, newly initialised", name, sizes));
        continue;
      }
      from = fit(name, from.to(torch::kFloat), to);
      check(from.defined(), "{}: '{}' must be {}, got {}", path, name, ops::sizes_text(to.sizes()),
            ops::sizes_text(view->shape));
      report.push_back(fmt::format("{}: {}, resized bicubically", name, sizes));
    }
    copies.emplace_back(to, from);
  }
  for (const format::TensorView& view : file.tensors()) {
    // A model without a head leaves the file's head alone.
    if (!model->head && view.name.starts_with("head.")) continue;
    if (view.name.starts_with(kTrainingPrefix)) continue;
    check(used.contains(view.name), "{}: the model has no place for the tensor '{}'", path,
          view.name);
  }
  for (auto& [to, from] : copies) to.copy_(from);
  return report;
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
  check(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
        "save_model: dtype must be float32, float16 or bfloat16");
  check(info.labels.empty() || static_cast<int64_t>(info.labels.size()) == model->config().classes,
        "save_model: there are {} labels for {} classes", info.labels.size(),
        model->config().classes);
  // Pictures have 1 or 3 channels; a model of others is fed by other means.
  const bool takes_pictures = model->config().in_channels == 1 || model->config().in_channels == 3;
  check(!takes_pictures || info.preprocess.channels() == model->config().in_channels,
        "save_model: the model takes {} channels, its preprocessing makes {}",
        model->config().in_channels, info.preprocess.channels());
  std::vector<torch::Tensor> kept;  // the views' bytes
  std::vector<format::TensorView> views;
  for (const auto& [name, tensor] : named_tensors(*model)) {
    const bool floating = tensor.is_floating_point();
    kept.push_back(tensor.detach().cpu().to(floating ? dtype : tensor.scalar_type()).contiguous());
    views.push_back(view_of(name, kept.back()));
  }
  for (const auto& [name, tensor] : training) {
    kept.push_back(tensor.detach().cpu().contiguous());
    views.push_back(view_of(kTrainingPrefix + name, kept.back()));
  }
  std::map<std::string, std::string> metadata = {
      {"format", kFormat}, {"config", models::to_json(model->config()).dump()}};
  if (takes_pictures) metadata["preprocess"] = data::to_json(info.preprocess).dump();
  if (!info.name.empty()) metadata["name"] = info.name;
  if (!info.labels.empty()) metadata["labels"] = json(info.labels).dump();
  if (!info.training.is_null()) metadata["training"] = info.training.dump();
  format::write_safetensors(path, views, metadata);
}

LoadedModel load_model(const std::string& path, const LoadOptions& options) {
  const SafetensorsFile file(path);
  const auto format = file.metadata().find("format");
  check(format == file.metadata().end() || format->second == kFormat,
        "{}: the file's format is '{}', this program reads '{}'", path, format->second, kFormat);
  const models::QnAViTConfig written = read_config(path, file);
  LoadedModel loaded;
  loaded.info = read_info(path, file, written);
  models::QnAViTConfig config = options.config.value_or(written);
  if (options.classes.has_value()) config.classes = *options.classes;
  if (options.image_size.has_value()) config.image_size = *options.image_size;
  // Before anything is built: a small file cannot ask for a large network.
  double stored = 0;
  for (const format::TensorView& view : file.tensors()) {
    stored += static_cast<double>(view.bytes.size()) / static_cast<double>(size_of(view.dtype));
  }
  const models::Cost cost = models::total_cost(models::layer_costs(written, 1, 1));
  // Twice: a missing tensor is for copy_weights to name.
  check(static_cast<double>(cost.parameters) <= 2 * stored + 1e6,
        "{}: the configuration asks for {} parameters, the file holds {:.0f}", path,
        cost.parameters, stored);
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
  return copy_weights(model, path, SafetensorsFile(path), /*new_head=*/true);
}

}  // namespace qna::checkpoint
