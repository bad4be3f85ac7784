#include "qna/config/detr.h"

#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "qna/base/error.h"
#include "qna/config/registry.h"
#include "qna/format/fields.h"

namespace qna::config {
namespace {

using nlohmann::json;

using format::EnumName;
using format::Fields;

constexpr const char* kDetrSubject = "detector configuration";

constexpr EnumName<PositionKind> kPositions[] = {{PositionKind::kSine, "sine"},
                                                 {PositionKind::kLearned, "learned"}};

struct ResNetName {
  const char* name;
  int64_t depth;
};
constexpr ResNetName kResNets[] = {{"resnet18", 18}, {"resnet50", 50}, {"resnet101", 101}};

// Every field of a struct is named once, here; see format/fields.h.
void visit_detr(auto& c, const auto& visit) {
  visit("hidden", c.hidden);
  visit("heads", c.heads);
  visit("encoder_blocks", c.encoder_blocks);
  visit("decoder_blocks", c.decoder_blocks);
  visit("feedforward", c.feedforward);
  visit("queries", c.queries);
  visit("classes", c.classes);
  visit("dropout", c.dropout);
  visit("pre_norm", c.pre_norm);
  visit.choose("positions", c.positions, kPositions);
  visit("waves", c.sines.waves);
  visit("temperature", c.sines.temperature);
  visit("anchors", c.anchors);
  visit("aux_loss", c.aux_loss);
}

void visit_qna(auto& c, const auto& visit) {
  visit("blocks", c.blocks);
  visit("replaces", c.replaces);
  visit("first", c.first);
  visit("heads", c.heads);
  visit("queries", c.queries);
  visit("kernel_size", c.kernel_size);
  visit("mlp_ratio", c.mlp_ratio);
}

std::variant<ResNetConfig, QnAViTConfig> backbone_by_name(const std::string& name) {
  std::vector<const char*> names;
  for (const ResNetName& row : kResNets) {
    if (name == row.name) return ResNetConfig{.depth = row.depth};
    names.push_back(row.name);
  }
  for (const ModelEntry& entry : models()) {
    if (name == entry.name) {
      QnAViTConfig config = entry.config;
      config.classes = 0;
      return config;
    }
    names.push_back(entry.name);
  }
  fail("{}: backbone must be one of {}, or a table, got '{}'", kDetrSubject, fmt::join(names, ", "),
       name);
}

std::variant<ResNetConfig, QnAViTConfig> backbone_from(const json& value) {
  if (value.is_string()) return backbone_by_name(value.get<std::string>());
  qna::check(value.is_object(), "{}: backbone must be a name or a table, got {}", kDetrSubject,
             value.dump());
  json table = value;
  if (!table.contains("classes")) table["classes"] = 0;
  try {
    return config_from_json(table);
  } catch (const Error& error) {
    fail("{}, backbone: {}", kDetrSubject, error.what());
  }
}

}  // namespace

int64_t DetrConfig::backbone_features() const {
  if (const auto* resnet = std::get_if<ResNetConfig>(&backbone)) return resnet->features();
  const auto& vit = std::get<QnAViTConfig>(backbone);
  return vit.features(vit.stages.size() - 1);
}

int64_t DetrConfig::backbone_stride() const {
  if (const auto* resnet = std::get_if<ResNetConfig>(&backbone)) return resnet->stride();
  const auto& vit = std::get<QnAViTConfig>(backbone);
  return vit.stride(vit.stages.size() - 1);
}

void check(const DetrConfig& c) {
  const auto in_range = [](const char* name, int64_t value, int64_t least, int64_t most) {
    qna::check(value >= least && value <= most, "{}: {} must be from {} to {}, got {}",
               kDetrSubject, name, least, most, value);
  };
  std::visit([](const auto& backbone) { check(backbone); }, c.backbone);
  const int64_t backbone_classes =
      std::visit([](const auto& backbone) { return backbone.classes; }, c.backbone);
  qna::check(backbone_classes == 0,
             "{}: the backbone has no head, so its classes must be 0, got {}", kDetrSubject,
             backbone_classes);
  // Ranges larger than any sensible network.
  in_range("hidden", c.hidden, 4, 1 << 14);
  in_range("heads", c.heads, 1, 1 << 14);
  in_range("encoder_blocks", c.encoder_blocks, 0, 100);
  in_range("decoder_blocks", c.decoder_blocks, 1, 100);
  in_range("feedforward", c.feedforward, 1, 1 << 17);
  in_range("queries", c.queries, 1, 1 << 16);
  in_range("classes", c.classes, 1, 1 << 20);
  qna::check(c.dropout >= 0 && c.dropout < 1, "{}: dropout must be at least 0 and below 1, got {}",
             kDetrSubject, c.dropout);
  qna::check(c.hidden % 4 == 0,
             "{}: hidden must be a multiple of 4, for sine and cosine of both axes, got {}",
             kDetrSubject, c.hidden);
  qna::check(c.hidden % c.heads == 0, "{}: heads must divide hidden ({}), got {}", kDetrSubject,
             c.hidden, c.heads);
  const std::pair<const char*, double> sines[] = {{"waves", c.sines.waves},
                                                  {"temperature", c.sines.temperature}};
  for (const auto& [name, value] : sines) {
    qna::check(value >= 1 && value <= 1e6, "{}: {} must be from 1 to 1e6, got {}", kDetrSubject,
               name, value);
  }
  qna::check(c.positions == PositionKind::kSine || c.sines == SineOptions{},
             "{}: waves and temperature belong to sine positions, but positions is learned",
             kDetrSubject);
  qna::check(!c.anchors || c.positions == PositionKind::kSine,
             "{}: positions must be sine for anchors, which lie at any place, got learned",
             kDetrSubject);
  in_range("qna.blocks", c.qna.blocks, 0, 100);
  if (c.qna.blocks == 0) return;
  in_range("qna.replaces", c.qna.replaces, 0, c.encoder_blocks);
  in_range("qna.first", c.qna.first, 0, c.encoder_blocks - c.qna.replaces);
  in_range("qna.heads", c.qna.heads, 1, 1 << 14);
  in_range("qna.queries", c.qna.queries, 1, 1024);
  for (const int64_t size : c.qna.kernel_size) in_range("qna.kernel_size", size, 1, 1023);
  qna::check(c.hidden % c.qna.heads == 0, "{}: qna.heads must divide hidden ({}), got {}",
             kDetrSubject, c.hidden, c.qna.heads);
  qna::check(std::isfinite(c.qna.mlp_ratio) && c.qna.mlp_ratio >= 0.25 && c.qna.mlp_ratio <= 64,
             "{}: qna.mlp_ratio must be from 0.25 to 64, got {}", kDetrSubject, c.qna.mlp_ratio);
}

TransformerOptions transformer_options(const DetrConfig& c) {
  TransformerOptions options{.features = c.hidden,
                             .heads = c.heads,
                             .encoder_blocks = c.encoder_blocks,
                             .decoder_blocks = c.decoder_blocks,
                             .feedforward = c.feedforward,
                             .dropout = c.dropout,
                             .pre_norm = c.pre_norm};
  if (c.qna.blocks > 0) {
    options.qna_blocks = c.qna.blocks;
    options.qna_replaced = c.qna.replaces;
    options.qna_first = c.qna.first;
    options.qna_block = {.qna = QnAOptions{.in_features = c.hidden,
                                           .heads = c.qna.heads,
                                           .queries = c.qna.queries,
                                           .kernel_size = c.qna.kernel_size},
                         .mlp_ratio = c.qna.mlp_ratio};
  }
  return options;
}

// Anchors are to find the positions of the map at their places.
SineOptions sine_options(const DetrConfig& c) {
  SineOptions options = c.sines;
  options.centred = c.anchors;
  return options;
}

json to_json(const DetrConfig& config) {
  json out;
  visit_detr(config, format::FieldWriter(out));
  if (const auto* resnet = std::get_if<ResNetConfig>(&config.backbone)) {
    out["backbone"] = fmt::format("resnet{}", resnet->depth);
    out["dilation"] = resnet->dilation;
  } else {
    out["backbone"] = to_json(std::get<QnAViTConfig>(config.backbone));
  }
  json qna = json::object();
  visit_qna(config.qna, format::FieldWriter(qna));
  out["qna"] = qna;
  return out;
}

DetrConfig detr_config_from_json(const json& object) {
  DetrConfig config;
  const Fields fields(object, kDetrSubject);
  visit_detr(config, fields);
  if (const json* backbone = fields.find("backbone")) config.backbone = backbone_from(*backbone);
  bool dilation = false;
  fields("dilation", dilation);
  if (auto* resnet = std::get_if<ResNetConfig>(&config.backbone)) {
    resnet->dilation = dilation;
  } else {
    qna::check(!dilation, "{}: dilation must be false but for ResNet backbones, got true",
               kDetrSubject);
  }
  const Fields qna = fields.table("qna");
  visit_qna(config.qna, qna);
  qna.refuse_unknown();
  fields.refuse_unknown();
  check(config);
  return config;
}

}  // namespace qna::config
