// The list of models, and what they cost.
#include "qna/models/registry.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <random>
#include <set>

#include "qna/models/cost.h"
#include "qna/models/qna_vit.h"
#include "qna/ops/tensors_test.h"

namespace qna::models {
namespace {

using ops::testing::expect_complaint;

int64_t parameters_of(const QnAViT& model) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : model->parameters()) count += parameter.numel();
  return count;
}

Cost cost_of(const QnAViTConfig& config) {
  return total_cost(layer_costs(config, config.image_size[0], config.image_size[1]));
}

TEST(Registry, Names) {
  std::set<std::string> names;
  for (const ModelEntry& entry : models()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_EQ(&find_model(entry.name), &entry);
    EXPECT_STRNE(entry.summary, "");
  }
  expect_complaint([] { find_model("qna_vit_huge"); },
                   {"qna_vit_huge", "qna_vit_tiny", "qna_vit_base_384"});
}

struct Known {
  const char* name;
  int64_t parameters;
  double gflops;
};

// Counted in the authors' code, 2 x multiply-adds and element-wise work. Ours counts the
// element-wise work in its own way: within 1 %.
constexpr Known kAuthors[] = {{"qna_vit_tiny", 15'715'560, 4.926},
                              {"qna_vit_tiny_7x7", 15'753'960, 5.082},
                              {"qna_vit_small", 24'971'560, 8.817},
                              {"qna_vit_base", 55'670'008, 19.202}};

TEST(Registry, TheAuthorsNumbers) {
  for (const Known& known : kAuthors) {
    SCOPED_TRACE(known.name);
    const ModelEntry& entry = find_model(known.name);
    EXPECT_EQ(entry.parameters, known.parameters);
    EXPECT_NEAR(entry.gflops, known.gflops, 0.01 * known.gflops);
    EXPECT_EQ(cost_of(entry.config).parameters, known.parameters);
    EXPECT_NEAR(cost_of(entry.config).flops / 1e9, known.gflops, 0.01 * known.gflops);
  }
}

TEST(Registry, EveryModelIsBuilt) {
  for (const ModelEntry& entry : models()) {
    SCOPED_TRACE(entry.name);
    const QnAViT model(entry.config);
    EXPECT_EQ(parameters_of(model), entry.parameters);
    const Cost cost = cost_of(entry.config);
    EXPECT_EQ(cost.parameters, entry.parameters);
    EXPECT_NEAR(cost.flops / 1e9, entry.gflops, 0.005 * entry.gflops);
  }
}

// The rows are the network's parts: their parameters are those of the modules they are named after.
TEST(Cost, EveryRow) {
  for (const char* name : {"qna_vit_nano", "qna_vit_pico"}) {
    const QnAViTConfig& config = find_model(name).config;
    const QnAViT model(config);
    std::map<std::string, int64_t> expected;
    const auto costs = layer_costs(config, config.image_size[0], config.image_size[1]);
    for (const LayerCost& row : costs) {
      int64_t count = 0;
      for (const auto& item : model->named_parameters()) {
        if (item.key().starts_with(row.name + ".")) count += item.value().numel();
      }
      EXPECT_EQ(row.parameters, count) << row.name;
      EXPECT_GT(row.flops, 0) << row.name;
    }
  }
}

// Random networks of every kind.
TEST(Cost, ParametersOfRandomConfigurations) {
  std::mt19937 random(51);
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int n = 0; n < 120; ++n) {
    QnAViTConfig config{
        .image_size = {pick(1, 70), pick(1, 70)},
        .in_channels = pick(1, 4),
        .classes = pick(0, 3) * 5,
        .base_dim = 4 * pick(1, 3),
        .stem = static_cast<StemKind>(pick(0, 1)),
        .patch_size = pick(1, 5),
        .local_mixer = static_cast<LocalMixer>(pick(0, 5)),
        .downsample = static_cast<Downsample>(pick(0, 7)),
        .downsample_skip = static_cast<DownsampleSkip>(pick(0, 1)),
        .mlp_ratio = 0.3 * static_cast<double>(pick(1, 12)),
        .attention_scale = static_cast<nn::AttentionScale>(pick(0, 5)),
        .normalize_queries = pick(0, 1) == 1,
        .layer_scale = 0.1 * static_cast<double>(pick(0, 1)),
        .head = static_cast<HeadKind>(pick(0, 2)),
    };
    for (int64_t i = pick(1, 4); i > 0; --i) {
      const bool global = pick(0, 3) == 0 && config.local_mixer != LocalMixer::kWindow;
      config.stages.push_back({.attention_blocks = pick(0, 2),
                               .qna_blocks = pick(0, 2),
                               .attention_heads = int64_t{1} << pick(0, 2),
                               .qna_heads = int64_t{1} << pick(0, 2),
                               .kernel_size = {pick(1, 4), pick(1, 4)},
                               .queries = 2 * pick(1, 2),
                               .window = {global ? 0 : pick(1, 5), global ? 0 : pick(1, 5)}});
    }
    const QnAViT model(config);
    EXPECT_EQ(cost_of(config).parameters, parameters_of(model)) << to_toml(config);
  }
}

}  // namespace
}  // namespace qna::models
