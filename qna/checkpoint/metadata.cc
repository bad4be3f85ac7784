#include "qna/checkpoint/metadata.h"

#include <algorithm>

#include "qna/base/error.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/format/fields.h"

namespace qna::checkpoint {
namespace {

using format::SafetensorsFile;
using nlohmann::json;

constexpr const char* kFormat = "qna-1";

struct KindRow {
  FileKind kind;
  const char* name;    // in the metadata
  const char* what;    // for people
  const char* reader;  // what such a file is for
};
constexpr KindRow kKinds[] = {
    {FileKind::kClassifier, "classifier", "a classifier", "qna predict, or load_model()"},
    {FileKind::kDetector, "detector", "a detector", "qna detect, or load_detector()"},
    {FileKind::kAutoEncoder, "auto-encoder", "an auto-encoder",
     "qna reconstruct, or load_auto_encoder()"}};

const KindRow& row_of(FileKind kind) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds),
                       [&](const KindRow& row) { return row.kind == kind; });
}

const std::string* find_text(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? nullptr : &found->second;
}

std::vector<std::string> read_labels(const std::string& path, const SafetensorsFile& file,
                                     int64_t classes) {
  const json labels = read_entry(path, file, "labels");
  if (labels.is_null()) return {};
  const bool strings = labels.is_array() && std::all_of(labels.begin(), labels.end(),
                                                        [](auto& l) { return l.is_string(); });
  check(strings, "{}: labels must be a list of strings", path);
  check(labels.empty() || static_cast<int64_t>(labels.size()) == classes,
        "{}: there are {} labels for {} classes", path, labels.size(), classes);
  return labels.get<std::vector<std::string>>();
}

}  // namespace

FileKind kind_of(const std::string& path, const SafetensorsFile& file) {
  const std::string* kind = find_text(file, "kind");
  if (kind == nullptr) return FileKind::kClassifier;
  for (const KindRow& row : kKinds) {
    if (*kind == row.name) return row.kind;
  }
  fail(
      "{}: the file's kind must be classifier, detector or auto-encoder, which this program knows, "
      "got '{}'",
      path, *kind);
}

void check_kind(const std::string& path, const SafetensorsFile& file, FileKind kind) {
  const std::string* format = find_text(file, "format");
  check(format == nullptr || *format == kFormat,
        "{}: the file's format is '{}', this program reads '{}'", path,
        format == nullptr ? "" : *format, kFormat);
  const KindRow& found = row_of(kind_of(path, file));
  check(found.kind == kind, "{}: the file holds {}, not {}: see {}", path, found.what,
        row_of(kind).what, found.reader);
}

json read_entry(const std::string& path, const SafetensorsFile& file, const char* key) {
  const std::string* text = find_text(file, key);
  if (text == nullptr) return nullptr;
  return format::parse_json(*text, fmt::format("{}: the metadata entry '{}'", path, key));
}

json read_config_entry(const std::string& path, const SafetensorsFile& file) {
  json config = read_entry(path, file, "config");
  check(!config.is_null(),
        "{}: there is no model configuration in the file's metadata; was it written by qna?", path);
  return config;
}

ModelInfo read_info(const std::string& path, const SafetensorsFile& file, int64_t channels,
                    int64_t classes) {
  ModelInfo info;
  if (const std::string* name = find_text(file, "name")) info.name = *name;
  const json preprocess = read_entry(path, file, "preprocess");
  if (!preprocess.is_null()) {
    info.preprocess = data::preprocess_from_json(preprocess, path);
    check(info.preprocess.channels() == channels,
          "{}: the model takes {} channels, its preprocessing makes {}", path, channels,
          info.preprocess.channels());
  }
  info.labels = read_labels(path, file, classes);
  info.training = read_entry(path, file, "training");
  return info;
}

Metadata to_metadata(const ModelInfo& info, const json& config, int64_t channels, int64_t classes,
                     const char* who) {
  // Pictures have 1 or 3 channels; a model of others is fed by other means.
  const bool takes_pictures = channels == 1 || channels == 3;
  check(info.labels.empty() || static_cast<int64_t>(info.labels.size()) == classes,
        "{}: there are {} labels for {} classes", who, info.labels.size(), classes);
  check(!takes_pictures || info.preprocess.channels() == channels,
        "{}: the model takes {} channels, its preprocessing makes {}", who, channels,
        info.preprocess.channels());
  Metadata metadata = {{"format", kFormat}, {"config", config.dump()}};
  if (takes_pictures) metadata["preprocess"] = data::to_json(info.preprocess).dump();
  if (!info.name.empty()) metadata["name"] = info.name;
  if (!info.labels.empty()) metadata["labels"] = json(info.labels).dump();
  if (!info.training.is_null()) metadata["training"] = info.training.dump();
  return metadata;
}

void check_parameters(const std::string& path, const SafetensorsFile& file, int64_t parameters) {
  double stored = 0;
  for (const format::TensorView& view : file.tensors()) {
    stored += static_cast<double>(view.bytes.size()) / static_cast<double>(size_of(view.dtype));
  }
  // Twice: a missing tensor is for WeightCopy to name.
  check(static_cast<double>(parameters) <= 2 * stored + 1e6,
        "{}: the configuration asks for {} parameters, the file holds {:.0f}", path, parameters,
        stored);
}

void write_model_file(const std::string& path, const torch::nn::Module& model, at::ScalarType dtype,
                      const NamedTensors& training, const Metadata& metadata, const char* who) {
  check(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
        "{}: dtype must be float32, float16 or bfloat16", who);
  std::vector<torch::Tensor> kept;  // the views' bytes
  std::vector<format::TensorView> views;
  for (const auto& [name, tensor] : named_tensors(model)) {
    const bool floating = tensor.is_floating_point();
    kept.push_back(tensor.detach().cpu().to(floating ? dtype : tensor.scalar_type()).contiguous());
    views.push_back(view_of(name, kept.back()));
  }
  for (const auto& [name, tensor] : training) {
    kept.push_back(tensor.detach().cpu().contiguous());
    views.push_back(view_of(kTrainingPrefix + name, kept.back()));
  }
  format::write_safetensors(path, views, metadata);
}

}  // namespace qna::checkpoint
