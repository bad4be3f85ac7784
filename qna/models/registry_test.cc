// The list of models, and what they cost.
#include "qna/config/registry.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <set>

#include "qna/config/network.h"
#include "qna/models/cost_testonly.h"
#include "qna/ops/tensors_testonly.h"
#include "tests/support/random_config.h"

namespace qna::models {
namespace {

using namespace config;
using testing::cost_of;
using testing::parameters_of;

using ops::testing::expect_complaint;

TEST(Registry, Names) {
  std::set<std::string> names;
  for (const ModelEntry& entry : config::models()) {
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
  for (const ModelEntry& entry : config::models()) {
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

TEST(Cost, ParametersOfRandomConfigurations) {
  testing::RandomConfig random(51);
  for (int n = 0; n < 120; ++n) {
    const QnAViTConfig config = random.qna_vit();
    const QnAViT model(config);
    EXPECT_EQ(cost_of(config).parameters, parameters_of(model)) << to_toml(config);
  }
}

}  // namespace
}  // namespace qna::models
