#include "qna/config/detectors.h"

#include <fmt/ranges.h>

#include "qna/base/error.h"
#include "qna/base/text.h"
#include "qna/config/registry.h"

namespace qna::config {
namespace {

DetrConfig on_qna_vit(const char* name, int64_t qna_blocks = 0) {
  QnAViTConfig backbone = find_model(name).config;
  backbone.classes = 0;
  return {.backbone = backbone, .qna = {.blocks = qna_blocks}};
}

DetrConfig on_resnet(const ResNetConfig& backbone) { return {.backbone = backbone}; }

std::vector<DetectorEntry> make_detectors() {
  // The paper's table of detectors, then DETR's other backbones.
  std::vector<DetectorEntry> list = {
      {"detr_r50", "DETR on ResNet-50", on_resnet({.depth = 50}), 41'524'768, 35.3},
      {"detr_tiny", "DETR on QnA-ViT-Tiny", on_qna_vit("qna_vit_tiny"), 32'879'200, 37.5},
      {"detr_tiny_7x7", "DETR on QnA-ViT-Tiny with 7 x 7 windows", on_qna_vit("qna_vit_tiny_7x7"),
       32'917'600, 37.9},
      {"detr_qna_tiny", "DETR-QnA on QnA-ViT-Tiny: four QnA blocks in the encoder",
       on_qna_vit("qna_vit_tiny", 4), 33'145'056, 38.5},
      {"detr_r18", "DETR on ResNet-18", on_resnet({.depth = 18}), 28'843'552, 0},
      {"detr_r101", "DETR on ResNet-101", on_resnet({.depth = 101}), 60'464'672, 0},
      {"detr_r50_dc5", "DETR on ResNet-50, last stage dilated",
       on_resnet({.depth = 50, .dilation = true}), 41'524'768, 0},
  };
  for (const DetectorEntry& entry : list) check(entry.config);
  return list;
}

}  // namespace

std::span<const DetectorEntry> detectors() {
  static const std::vector<DetectorEntry> list = make_detectors();
  return list;
}

const DetectorEntry& find_detector(std::string_view name) {
  std::vector<std::string> names;
  for (const DetectorEntry& entry : detectors()) {
    if (name == entry.name) return entry;
    names.push_back(entry.name);
  }
  const std::string meant = did_you_mean(name, names);
  fail("there is no detector '{}'{} {} detectors are {}", name, meant.empty() ? ";" : meant,
       meant.empty() ? "the" : "The", fmt::join(names, ", "));
}

}  // namespace qna::config
