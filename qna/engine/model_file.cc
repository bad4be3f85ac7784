#include "qna/engine/model_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "qna/base/error.h"
#include "qna/base/half.h"
#include "qna/base/text.h"
#include "qna/format/fields.h"
#include "qna/format/text.h"

namespace qna::engine {
namespace {

using format::DType;
using format::SafetensorsFile;
using format::TensorView;
using nlohmann::json;
using Metadata = std::map<std::string, std::string>;

constexpr const char* kFormat = "qna-1";

const std::string* find_text(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? nullptr : &found->second;
}

// Classifiers do not say so.
Kind read_kind(const std::string& origin, const SafetensorsFile& file) {
  const std::string* format = find_text(file, "format");
  check(format == nullptr || *format == kFormat,
        "{}: the file's format is {}, this program reads '{}'", origin,
        format == nullptr ? "" : format::in_quotes(*format), kFormat);
  const std::string* kind = find_text(file, "kind");
  if (kind == nullptr) return Kind::kClassifier;
  const std::optional<Kind> known = config::find_kind(*kind);
  check(known.has_value(), "{}: the file's kind must be one of {}, got {}", origin,
        config::kind_names(), format::in_quotes(*kind));
  return *known;
}

// One entry of the metadata as JSON; null where there is none.
json read_entry(const std::string& origin, const SafetensorsFile& file, const char* key) {
  const std::string* text = find_text(file, key);
  if (text == nullptr) return nullptr;
  return format::parse_json(*text, fmt::format("{}: the metadata entry '{}'", origin, key));
}

NetworkConfig read_config(const std::string& origin, const SafetensorsFile& file, Kind kind) {
  const json object = read_entry(origin, file, "config");
  check(!object.is_null(),
        "{}: there is no model configuration in the file's metadata; was it written by qna?",
        origin);
  try {
    return config::network_from_json(kind, object);
  } catch (const Error& error) {
    fail("{}: {}", origin, error.what());
  }
}

std::vector<std::string> read_labels(const std::string& origin, const SafetensorsFile& file) {
  const json labels = read_entry(origin, file, "labels");
  if (labels.is_null()) return {};
  const bool strings = labels.is_array() && std::all_of(labels.begin(), labels.end(),
                                                        [](auto& l) { return l.is_string(); });
  check(strings, "{}: labels must be a list of strings", origin);
  return labels.get<std::vector<std::string>>();
}

std::vector<int64_t> read_category_ids(const std::string& origin, const SafetensorsFile& file) {
  const json ids = read_entry(origin, file, "category_ids");
  if (ids.is_null()) return {};
  const bool integers = ids.is_array() && std::all_of(ids.begin(), ids.end(), [](const json& id) {
                          // Numbers above int64_t would wrap.
                          return id.is_number_integer() &&
                                 (!id.is_number_unsigned() || id.get<uint64_t>() <= INT64_MAX);
                        });
  check(integers, "{}: category_ids must be a list of integers", origin);
  return ids.get<std::vector<int64_t>>();
}

// Images have 1 or 3 channels; a model of others is fed by other means.
bool takes_images(const NetworkConfig& config) {
  return config::channels_of(config) == 1 || config::channels_of(config) == 3;
}

// What must fit the configuration. Messages begin with `where`.
void check_info(const NetworkConfig& config, const ModelInfo& info, const std::string& where) {
  const int64_t classes = config::classes_of(config);
  check(info.labels.empty() || static_cast<int64_t>(info.labels.size()) == classes,
        "{}: there are {} labels for {} classes", where, info.labels.size(), classes);
  check(!takes_images(config) || info.preprocess.channels() == config::channels_of(config),
        "{}: the model takes {} channels, its preprocessing makes {}", where,
        config::channels_of(config), info.preprocess.channels());
  if (kind_of(config) != Kind::kDetector) return;
  const auto& [height, width] = info.preprocess.crop;
  check(height == 0 && width == 0,
        "{}: a detector looks at whole pictures, so preprocess.crop must be 0, 0, got {}, {}",
        where, height, width);
  const std::vector<int64_t>& ids = info.category_ids;
  check(ids.empty() || static_cast<int64_t>(ids.size()) == classes,
        "{}: there are {} category_ids for {} classes", where, ids.size(), classes);
  check(std::set<int64_t>(ids.begin(), ids.end()).size() == ids.size(),
        "{}: category_ids must be different for all classes", where);
}

ModelInfo read_info(const std::string& origin, const SafetensorsFile& file,
                    const NetworkConfig& config) {
  ModelInfo info;
  if (const std::string* name = find_text(file, "name")) info.name = *name;
  const json preprocess = read_entry(origin, file, "preprocess");
  if (!preprocess.is_null()) {
    info.preprocess = config::preprocess_from_json(preprocess, origin);
  } else {  // a default that fits
    if (config::channels_of(config) == 1) info.preprocess.mean = info.preprocess.std = {0.5f};
    if (kind_of(config) == Kind::kDetector) info.preprocess.crop = {0, 0};
  }
  info.labels = read_labels(origin, file);
  info.category_ids = read_category_ids(origin, file);
  info.training = read_entry(origin, file, "training");
  check_info(config, info, origin);
  return info;
}

Metadata to_metadata(const NetworkConfig& config, const ModelInfo& info, const char* who) {
  check_info(config, info, who);
  Metadata metadata = {{"format", kFormat}, {"config", config::to_json(config).dump()}};
  const Kind kind = kind_of(config);
  if (kind != Kind::kClassifier) metadata["kind"] = config::name_of(kind);
  if (takes_images(config)) metadata["preprocess"] = config::to_json(info.preprocess).dump();
  if (!info.name.empty()) metadata["name"] = info.name;
  if (!info.labels.empty()) metadata["labels"] = json(info.labels).dump();
  if (!info.category_ids.empty()) metadata["category_ids"] = json(info.category_ids).dump();
  if (!info.training.is_null()) metadata["training"] = info.training.dump();
  return metadata;
}

bool is_floating(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

// Elements of any alignment, one by one.
template <typename Stored, typename Use>
void for_each_element(const TensorView& view, const Use& use) {
  for (size_t at = 0; at < view.bytes.size(); at += sizeof(Stored)) {
    Stored value;
    std::memcpy(&value, view.bytes.data() + at, sizeof(Stored));
    use(value);
  }
}

template <typename T>
std::string narrowed(const std::vector<float>& floats) {
  std::string bytes(floats.size() * sizeof(T), '\0');
  for (size_t i = 0; i < floats.size(); ++i) {
    const T value = from_float<T>(floats[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

// The tensors as they shall stand in the file, and the bytes of those that had to be converted.
struct Converted {
  Converted(std::span<const TensorView> tensors, DType dtype, const char* who) {
    check(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16,
          "{}: dtype must be float32, float16 or bfloat16", who);
    for (const TensorView& tensor : tensors) {
      views.push_back(tensor);
      const bool stays = tensor.name.starts_with(kTrainingPrefix) || !is_floating(tensor.dtype) ||
                         tensor.dtype == dtype;
      if (stays) continue;
      const std::vector<float> floats = read_floats(tensor, who);
      std::string text;
      if (dtype == DType::kF16) {
        text = narrowed<Float16>(floats);
      } else if (dtype == DType::kBF16) {
        text = narrowed<BFloat16>(floats);
      } else {
        text = narrowed<float>(floats);
      }
      bytes.push_back(std::make_unique<std::string>(std::move(text)));
      views.back().dtype = dtype;
      views.back().bytes = std::as_bytes(std::span(*bytes.back()));
    }
  }
  std::vector<TensorView> views;
  std::vector<std::unique_ptr<std::string>> bytes;
};

}  // namespace

WrongKind::WrongKind(const std::string& origin, Kind held_in, Kind wanted)
    : Error(fmt::format("{}: the file holds {}, not {}", origin, config::describe(held_in),
                        config::describe(wanted))),
      held(held_in) {}

ModelFile::ModelFile(std::unique_ptr<const SafetensorsFile> tensors, std::string origin)
    : origin_(std::move(origin)), tensors_(std::move(tensors)) {
  config_ = read_config(origin_, *tensors_, read_kind(origin_, *tensors_));
  info_ = read_info(origin_, *tensors_, config_);
}

ModelFile ModelFile::open(const std::string& path) {
  return ModelFile(std::make_unique<SafetensorsFile>(path), path);
}

ModelFile ModelFile::parse(std::shared_ptr<const std::string> bytes, const std::string& origin) {
  return ModelFile(std::make_unique<SafetensorsFile>(std::move(bytes), origin), origin);
}

void ModelFile::check_tensors() const {
  std::set<std::string_view> known;
  const config::Parameters wanted = config::parameters(config_);
  for (const config::Parameter& parameter : wanted) {
    const TensorView* view = tensors_->find(parameter.name);
    check(view != nullptr, "{}: there is no tensor '{}', which the model needs", origin_,
          parameter.name);
    known.insert(parameter.name);
    check(view->shape == parameter.shape, "{}: '{}' must be {}, got {}", origin_, parameter.name,
          in_brackets(parameter.shape), in_brackets(view->shape));
    if (parameter.kind == config::Parameter::Kind::kCount) continue;
    check(is_floating(view->dtype), "{}: '{}' must be of a floating type, got {}", origin_,
          parameter.name, format::name_of(view->dtype));
    const std::vector<float> floats = read_floats(*view, origin_);
    const auto odd =
        std::find_if(floats.begin(), floats.end(), [](float x) { return !std::isfinite(x); });
    check(odd == floats.end(),
          "{}: '{}' must be finite, got {} at place {}; is it of a run that diverged?", origin_,
          parameter.name, odd == floats.end() ? 0 : *odd, odd - floats.begin());
  }
  for (const TensorView& view : tensors_->tensors()) {
    check(known.contains(view.name) || view.name.starts_with(kTrainingPrefix),
          "{}: the model has no place for the tensor {}", origin_, format::in_quotes(view.name));
  }
}

void write_model_file(const std::string& path, const NetworkConfig& config, const ModelInfo& info,
                      std::span<const TensorView> tensors, DType dtype, const char* who) {
  const Converted converted(tensors, dtype, who);
  format::write_safetensors(path, converted.views, to_metadata(config, info, who));
}

std::string model_file_bytes(const NetworkConfig& config, const ModelInfo& info,
                             std::span<const TensorView> tensors, DType dtype, const char* who) {
  const Converted converted(tensors, dtype, who);
  return format::safetensors_bytes(converted.views, to_metadata(config, info, who), who);
}

std::vector<float> read_floats(const TensorView& view, const std::string& origin) {
  std::vector<float> out;
  out.reserve(view.bytes.size() / format::size_of(view.dtype));
  switch (view.dtype) {
    case DType::kF32:
      out.resize(view.bytes.size() / sizeof(float));
      if (!out.empty()) std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
      break;
    case DType::kF64:
      for_each_element<double>(view, [&](double x) { out.push_back(static_cast<float>(x)); });
      break;
    case DType::kF16:
      for_each_element<Float16>(view, [&](Float16 x) { out.push_back(to_float(x)); });
      break;
    case DType::kBF16:
      for_each_element<BFloat16>(view, [&](BFloat16 x) { out.push_back(to_float(x)); });
      break;
    default:
      fail("{}: '{}' must be of a floating type, got {}", origin, view.name,
           format::name_of(view.dtype));
  }
  return out;
}

}  // namespace qna::engine
