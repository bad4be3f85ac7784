#include "qna/checkpoint/detector_file.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "qna/base/error.h"
#include "qna/checkpoint/metadata.h"
#include "qna/checkpoint/weight_copy.h"
#include "qna/models/detr_cost.h"

namespace qna::checkpoint {
namespace {

using format::SafetensorsFile;
using nlohmann::json;

constexpr int64_t kChannels = 3;
constexpr const char* kBody = "backbone.0.body.";
constexpr const char* kNorm = "backbone.0.norm.";  // in a classifier: head.norm

models::DetrConfig read_config(const std::string& path, const SafetensorsFile& file) {
  const json object = read_config_entry(path, file);
  try {
    return models::detr_config_from_json(object);
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
}

std::vector<int64_t> read_category_ids(const std::string& path, const SafetensorsFile& file) {
  const json ids = read_entry(path, file, "category_ids");
  if (ids.is_null()) return {};
  const bool integers = ids.is_array() && std::all_of(ids.begin(), ids.end(), [](const json& id) {
                          // Numbers above int64_t would wrap.
                          return id.is_number_integer() &&
                                 (!id.is_number_unsigned() || id.get<uint64_t>() <= INT64_MAX);
                        });
  check(integers, "{}: category_ids must be a list of integers", path);
  return ids.get<std::vector<int64_t>>();
}

// What ModelInfo does not have, and what a detector does not let it have.
void check_info(const DetectorInfo& info, int64_t classes, const std::string& where) {
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

std::string describe_backbone(const models::DetrConfig& config) {
  if (const auto* resnet = std::get_if<models::ResNetConfig>(&config.backbone)) {
    return fmt::format("ResNet-{}", resnet->depth);
  }
  return "QnA-ViT";
}

// new_head: classes and object queries of another number keep their initial values.
LoadReport copy_detector(models::Detr& model, const std::string& path, const SafetensorsFile& file,
                         bool new_head) {
  const bool anchors = file.find("refpoint_embed.weight") != nullptr;
  check(anchors == model->config().anchors,
        "{}: the queries in the file are {}, but the model's are {}; see 'anchors' of its "
        "configuration",
        path, anchors ? "boxes" : "vectors", anchors ? "vectors" : "boxes");
  WeightCopy copy(path, file);
  for (const auto& [name, tensor] : named_tensors(*model)) {
    const bool of_head = name.starts_with("class_embed.") || name.starts_with("query_embed.") ||
                         name.starts_with("refpoint_embed.");
    const bool other_rows = new_head && of_head;
    copy.add(name, tensor,
             other_rows ? WeightCopy::OtherRows::kKeepInitial : WeightCopy::OtherRows::kRefuse);
  }
  return copy.finish();
}

// What a detector has beside its backbone, in one line.
std::string beside_the_backbone(const models::Detr& model) {
  std::vector<std::string> parts;
  for (const auto& [name, tensor] : named_tensors(*model)) {
    if (name.starts_with("backbone.0.")) continue;
    const bool positions = name.starts_with("backbone.1.");
    const std::string part = positions ? "backbone.1" : name.substr(0, name.find('.'));
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text + ": not in a classifier's file, newly initialised";
}

void copy_backbone(models::Detr& model, WeightCopy& copy) {
  const std::string body = kBody, norm = kNorm;
  for (const auto& [name, tensor] : named_tensors(*model)) {
    if (name.starts_with(body)) copy.add(name.substr(body.size()), tensor);
    if (!name.starts_with(norm)) continue;
    const std::string in_file = "head.norm." + name.substr(norm.size());
    if (copy.has(in_file)) {
      copy.add(in_file, tensor, WeightCopy::OtherRows::kKeepInitial);  // of another stage
    } else {
      copy.leave(name);  // the classifier's file has no head
    }
  }
}

LoadReport copy_qna_vit(models::Detr& model, const std::string& path, const SafetensorsFile& file) {
  check_kind(path, file, FileKind::kClassifier);
  check(model->config().has_qna_backbone(),
        "{}: the file holds a QnA-ViT, but the detector's backbone is a {}", path,
        describe_backbone(model->config()));
  WeightCopy copy(path, file);
  copy_backbone(model, copy);
  copy.ignore([](const std::string& name) { return name.starts_with("head."); });
  // The detector may have only the first stages, the last of which leads to no other.
  const size_t stages = std::get<models::QnAViTConfig>(model->config().backbone).stages.size();
  const std::string last = fmt::format("stages.{}.downsample.", stages - 1);
  bool more = false;
  copy.ignore([&](const std::string& name) {
    size_t stage = 0;
    const bool behind = std::sscanf(name.c_str(), "stages.%zu.", &stage) == 1 && stage >= stages;
    more = more || behind;
    return behind || name.starts_with(last);
  });
  LoadReport report = copy.finish();
  if (more) report.push_back(fmt::format("stages behind number {}: left out", stages));
  return report;
}

// torchvision's names; its BatchNorm counts batches, which frozen ones do not.
LoadReport copy_resnet(models::Detr& model, const std::string& path, const SafetensorsFile& file) {
  check(!model->config().has_qna_backbone(),
        "{}: the file holds a ResNet, but the detector's backbone is a {}", path,
        describe_backbone(model->config()));
  WeightCopy copy(path, file);
  copy_backbone(model, copy);
  copy.ignore([](const std::string& name) {
    return name.starts_with("fc.") || name.ends_with(".num_batches_tracked");
  });
  return copy.finish();
}

}  // namespace

bool is_detector_file(const std::string& path) {
  const SafetensorsFile file(path);
  return kind_of(path, file) == FileKind::kDetector;
}

void save_detector(const std::string& path, const models::Detr& model, const DetectorInfo& info,
                   at::ScalarType dtype, const NamedTensors& training) {
  const models::DetrConfig& config = model->config();
  check_info(info, config.classes, "save_detector");
  const ModelInfo common{.name = info.name,
                         .preprocess = info.preprocess,
                         .labels = info.labels,
                         .training = info.training};
  Metadata metadata =
      to_metadata(common, models::to_json(config), kChannels, config.classes, "save_detector");
  metadata["kind"] = "detector";
  if (!info.category_ids.empty()) metadata["category_ids"] = json(info.category_ids).dump();
  write_model_file(path, *model, dtype, training, metadata, "save_detector");
}

LoadedDetector load_detector(const std::string& path) {
  const SafetensorsFile file(path);
  check_kind(path, file, FileKind::kDetector);
  const models::DetrConfig config = read_config(path, file);
  check(file.metadata().contains("preprocess"),
        "{}: there is no preprocessing in the file's metadata; was it written by qna?", path);
  const ModelInfo common = read_info(path, file, kChannels, config.classes);
  LoadedDetector loaded;
  loaded.info = {.name = common.name,
                 .preprocess = common.preprocess,
                 .labels = common.labels,
                 .category_ids = read_category_ids(path, file),
                 .training = common.training};
  check_info(loaded.info, config.classes, path);
  check_parameters(path, file, models::total_cost(models::layer_costs(config, 1, 1)).parameters);
  loaded.model = models::Detr(config);
  loaded.report = copy_detector(loaded.model, path, file, /*new_head=*/false);
  loaded.model->eval();
  return loaded;
}

LoadReport load_detector_weights(models::Detr& model, const std::string& path) {
  const SafetensorsFile file(path);
  if (kind_of(path, file) == FileKind::kDetector) {
    check_kind(path, file, FileKind::kDetector);  // and the format
    return copy_detector(model, path, file, /*new_head=*/true);
  }
  const bool qna_vit = file.metadata().contains("config");
  const bool resnet = file.find("conv1.weight") != nullptr && file.find("layer1.0.conv1.weight");
  check(qna_vit || resnet,
        "{}: the file must hold a detector or a QnA-ViT written by qna, or a ResNet with "
        "torchvision's names; tools/convert_detr.py makes them of .pth files",
        path);
  LoadReport report = qna_vit ? copy_qna_vit(model, path, file) : copy_resnet(model, path, file);
  report.push_back(beside_the_backbone(model));
  return report;
}

}  // namespace qna::checkpoint
