// What a detector can start from.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "qna/base/error.h"
#include "qna/checkpoint/model_file.h"
#include "qna/checkpoint/weight_copy.h"

namespace qna::checkpoint {
namespace {

constexpr const char* kBody = "backbone.0.body.";
constexpr const char* kNorm = "backbone.0.norm.";  // in a classifier: head.norm

std::string describe_backbone(const config::DetrConfig& config) {
  if (const auto* resnet = std::get_if<config::ResNetConfig>(&config.backbone)) {
    return fmt::format("ResNet-{}", resnet->depth);
  }
  return "QnA-ViT";
}

// The head of classes, by their names.
void copy_classes(models::Detr& model, const engine::ModelFile& file,
                  const std::vector<std::string>& classes, WeightCopy& copy) {
  const std::vector<std::string>& known = file.info().labels;
  std::vector<int64_t> rows;
  std::vector<std::string> kept;
  for (const std::string& name : classes) {
    const auto found = std::ranges::find(known, name);
    rows.push_back(found == known.end() ? WeightCopy::kMeanRow : found - known.begin());
    if (found != known.end()) kept.push_back(fmt::format("'{}'", name));
  }
  rows.push_back(static_cast<int64_t>(known.size()));  // "no object"
  copy.add_rows("class_embed.weight", model->class_embed->weight, rows);
  copy.add_rows("class_embed.bias", model->class_embed->bias, rows);
  if (classes == known) return;
  if (!kept.empty()) {
    copy.say(fmt::format("class_embed: {} {} known by name", fmt::join(kept, ", "),
                         kept.size() == 1 ? "is" : "are"));
  }
  if (kept.size() < classes.size()) {
    copy.say(fmt::format("class_embed: {} of {} classes are new: the mean of the file's {}",
                         classes.size() - kept.size(), classes.size(), known.size()));
  }
}

LoadReport copy_detector(models::Detr& model, const engine::ModelFile& file,
                         const std::vector<std::string>& classes) {
  const bool anchors = file.tensors().find("refpoint_embed.weight") != nullptr;
  check(anchors == model->config().anchors,
        "{}: the queries in the file are {}, but the model's are {}; see 'anchors' of its "
        "configuration",
        file.origin(), anchors ? "boxes" : "vectors", anchors ? "vectors" : "boxes");
  WeightCopy copy(file.origin(), file.tensors());
  const bool by_name = !classes.empty() && !file.info().labels.empty();
  if (by_name) copy_classes(model, file, classes, copy);
  for (const auto& [name, tensor] : named_tensors(*model)) {
    if (by_name && name.starts_with("class_embed.")) continue;
    const bool of_head = name.starts_with("class_embed.") || name.starts_with("query_embed.") ||
                         name.starts_with("refpoint_embed.");
    copy.add(name, tensor,
             of_head ? WeightCopy::OtherRows::kKeepInitial : WeightCopy::OtherRows::kRefuse);
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
  return fmt::format("{}: not in a classifier's file, newly initialised", fmt::join(parts, ", "));
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

LoadReport copy_qna_vit(models::Detr& model, const engine::ModelFile& file) {
  file.config_as<config::QnAViTConfig>();
  check(model->config().has_qna_backbone(),
        "{}: the file holds a QnA-ViT, but the detector's backbone is a {}", file.origin(),
        describe_backbone(model->config()));
  WeightCopy copy(file.origin(), file.tensors());
  copy_backbone(model, copy);
  copy.ignore([](const std::string& name) { return name.starts_with("head."); });
  // The detector may have only the first stages, the last of which leads to no other.
  const size_t stages = std::get<config::QnAViTConfig>(model->config().backbone).stages.size();
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
LoadReport copy_resnet(models::Detr& model, const std::string& path,
                       const format::SafetensorsFile& file) {
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

LoadReport load_weights(models::Detr& model, const std::string& path,
                        const std::vector<std::string>& classes) {
  const format::SafetensorsFile file(path);
  LoadReport report;
  if (file.metadata().contains("config")) {
    const engine::ModelFile ours = engine::ModelFile::open(path);
    if (ours.kind() == config::Kind::kDetector) return copy_detector(model, ours, classes);
    report = copy_qna_vit(model, ours);
  } else {
    const bool resnet = file.find("conv1.weight") != nullptr && file.find("layer1.0.conv1.weight");
    check(resnet,
          "{}: the file must hold a detector or a QnA-ViT written by qna, or a ResNet with "
          "torchvision's names; tools/convert_pth.py makes them of .pth files",
          path);
    report = copy_resnet(model, path, file);
  }
  report.push_back(beside_the_backbone(model));
  return report;
}

}  // namespace qna::checkpoint
