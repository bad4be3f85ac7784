#include "qna/config/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "qna/base/error.h"
#include "qna/base/text.h"

namespace qna::config {
namespace {

struct FourStages {
  int64_t image = 224;
  int64_t base_dim = 64;
  std::array<int64_t, 4> attention_blocks;
  std::array<int64_t, 4> qna_blocks;
  std::array<int64_t, 4> attention_heads = {2, 4, 8, 16};
  std::array<int64_t, 4> qna_heads = {8, 16, 32, 64};
  int64_t kernel = 3;
  std::array<int64_t, 4> window = {7, 7, 14, 7};
  int64_t patch = 4;
  double drop_path;
};

QnAViTConfig four_stages(const FourStages& s) {
  QnAViTConfig config{.image_size = {s.image, s.image},
                      .base_dim = s.base_dim,
                      .patch_size = s.patch,
                      .drop_path = s.drop_path};
  for (size_t i = 0; i < 4; ++i) {
    config.stages.push_back({.attention_blocks = s.attention_blocks[i],
                             .qna_blocks = s.qna_blocks[i],
                             .attention_heads = s.attention_heads[i],
                             .qna_heads = s.qna_heads[i],
                             .kernel_size = {s.kernel, s.kernel},
                             .window = {s.window[i], s.window[i]}});
  }
  return config;
}

const FourStages kTiny{
    .attention_blocks = {0, 0, 4, 2}, .qna_blocks = {2, 3, 2, 0}, .drop_path = 0.05};

FourStages with(FourStages shape, const auto& change) {
  change(shape);
  return shape;
}

const FourStages kTiny7x7 = with(kTiny, [](FourStages& s) { s.kernel = 7; });
const FourStages kSmall{
    .attention_blocks = {0, 0, 12, 2}, .qna_blocks = {2, 3, 6, 0}, .drop_path = 0.2};
const FourStages kBase{.base_dim = 96,
                       .attention_blocks = {0, 0, 12, 2},
                       .qna_blocks = {2, 3, 6, 0},
                       .attention_heads = {3, 6, 12, 24},
                       .qna_heads = {6, 12, 24, 48},
                       .drop_path = 0.5};
// Windows as large as the maps: the only ones that give the paper's 30.6 GMACs.
const FourStages kBase384 = with(kBase, [](FourStages& s) {
  s.image = 384;
  s.window = {7, 7, 24, 12};
});
// For small images: patches of 2 pixels, so that 32 px still have a map of 16 x 16.
const FourStages kNano{.image = 64,
                       .base_dim = 32,
                       .attention_blocks = {0, 0, 2, 1},
                       .qna_blocks = {1, 2, 1, 0},
                       .attention_heads = {1, 2, 4, 8},
                       .qna_heads = {4, 8, 16, 32},
                       .window = {8, 8, 8, 4},
                       .patch = 2,
                       .drop_path = 0.05};
const FourStages kPico = with(kNano, [](FourStages& s) {
  s.image = 32;
  s.base_dim = 16;
  s.attention_blocks = {0, 0, 1, 1};
  s.qna_blocks = {1, 1, 1, 0};
  s.qna_heads = {2, 4, 8, 16};
  s.window = {8, 8, 4, 2};
  s.drop_path = 0;
});

std::vector<ModelEntry> make_list() {
  std::vector<ModelEntry> list = {
      {"qna_vit_tiny", "3x3 windows", four_stages(kTiny), 15'715'560, 4.941, 81.7, 1060,
       "imagenet_tiny.toml"},
      {"qna_vit_tiny_7x7", "7x7 windows", four_stages(kTiny7x7), 15'753'960, 5.117, 82.0, 895,
       "imagenet_tiny_7x7.toml"},
      {"qna_vit_small", "deeper third stage", four_stages(kSmall), 24'971'560, 8.838, 83.2, 596,
       "imagenet_small.toml"},
      {"qna_vit_base", "wider", four_stages(kBase), 55'670'008, 19.235, 83.7, 372,
       "imagenet_base.toml"},
      {"qna_vit_base_384", "Base fine-tuned at 384 px", four_stages(kBase384), 55'900'408, 60.824,
       84.8, 177, "imagenet_base_384.toml"},
      {"qna_vit_nano", "small pictures, 28 to 128 px", four_stages(kNano), 2'640'072, 0.256, 0, 0,
       "imagenette.toml"},
      {"qna_vit_pico", "smaller still, for quick work", four_stages(kPico), 667'116, 0.0137, 0, 0,
       "fashion_mnist.toml"},
  };
  std::set<std::string> names;
  for (const ModelEntry& entry : list) {
    qna::check(names.insert(entry.name).second, "models: '{}' is listed twice", entry.name);
    check(entry.config);
  }
  return list;
}

}  // namespace

std::span<const ModelEntry> models() {
  static const std::vector<ModelEntry> list = make_list();
  return list;
}

const ModelEntry& find_model(std::string_view name) {
  std::vector<std::string> names;
  for (const ModelEntry& entry : models()) {
    if (name == entry.name) return entry;
    names.push_back(entry.name);
  }
  const std::string meant = did_you_mean(name, names);
  fail("there is no model '{}'{} {} models are {}", name, meant.empty() ? ";" : meant,
       meant.empty() ? "the" : "The", fmt::join(names, ", "));
}

}  // namespace qna::config
