// The networks of the paper's tables: built, and their figures beside the paper's.
#include "qna/config/ablations.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>
#include <map>
#include <numeric>
#include <set>

#include "qna/models/cost_testonly.h"

namespace qna::models {
namespace {

using namespace config;
using testing::cost_of;
using testing::parameters_of;

double millions(const Cost& cost) { return static_cast<double>(cost.parameters) / 1e6; }
double gmacs(const Cost& cost) { return cost.flops / 2e9; }

TEST(Ablations, FiguresOfThePaper) {
  for (const Ablation& row : ablations()) {
    const Cost cost = cost_of(row.config);
    std::cout << fmt::format("{:<38} {:<58} {:7.3f} M (paper {:6.3f}) {:6.3f} G (paper {:.3f})\n",
                             row.table, row.row, millions(cost), row.paper_parameters, gmacs(cost),
                             row.paper_gmacs);
    SCOPED_TRACE(row.row);
    if (row.paper_parameters > 0) {
      EXPECT_NEAR(millions(cost), row.paper_parameters, row.parameters_within);
    }
    if (row.paper_gmacs > 0) {
      EXPECT_NEAR(gmacs(cost), row.paper_gmacs, row.gmacs_within);
    }
  }
}

// The networks of this table differ from ours by the same amount, all of them: within the rounding
// of what is printed. But for SASA's work, which counts queries that strided layers need not make.
TEST(Ablations, QueriesDifferByOneAmount) {
  std::vector<double> parameters, work;
  for (const Ablation& row : ablations()) {
    if (std::string_view(row.table) != "Multiple queries effect") continue;
    parameters.push_back(row.paper_parameters - millions(cost_of(row.config)));
    work.push_back(row.paper_gmacs - gmacs(cost_of(row.config)));
  }
  ASSERT_EQ(parameters.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(parameters[i], 0.587, 0.004) << i;
    EXPECT_NEAR(work[i], i == 0 ? 0.112 : 0.033, 0.003) << i;
  }
}

// Every row can be built: an eighth as wide, since the widths are not what differs, and one of each
// kind as wide as it is.
TEST(Ablations, AreBuilt) {
  const torch::NoGradGuard no_grad;
  std::set<std::pair<LocalMixer, Downsample>> seen;
  for (const Ablation& row : ablations()) {
    SCOPED_TRACE(row.row);
    if (seen.insert({row.config.local_mixer, row.config.downsample}).second) {
      EXPECT_EQ(parameters_of(QnAViT(row.config)), cost_of(row.config).parameters);
    }
    QnAViTConfig config = row.config;
    config.base_dim /= 8;
    config.image_size = {32, 32};
    config.classes = 10;
    for (StageConfig& stage : config.stages) {
      stage.attention_heads = std::gcd(stage.attention_heads, config.base_dim);
      stage.qna_heads = std::gcd(stage.qna_heads, config.base_dim);
    }
    QnAViT model(config);
    model->eval();
    EXPECT_EQ(parameters_of(model), cost_of(config).parameters);
    const torch::Tensor logits = model->forward(torch::randn({1, 32, 32, 3}));
    EXPECT_TRUE(logits.isfinite().all().item<bool>());
  }
  EXPECT_EQ(seen.size(), 4u);  // QnA, SASA, and the other two ways to down-sample
}

// A note for every table that needs one, and none that belongs to no table.
TEST(Ablations, Notes) {
  std::map<std::string, int> tables;
  for (const Ablation& row : ablations()) ++tables[row.table];
  EXPECT_EQ(tables.size(), 6u);
  int notes = 0;
  for (const auto& [table, rows] : tables) notes += !ablation_note(table).empty();
  EXPECT_EQ(notes, 4);
  EXPECT_EQ(ablation_note("no such table"), "");
}

}  // namespace
}  // namespace qna::models
