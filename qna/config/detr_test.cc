// Configurations of detectors as JSON and TOML: what goes out comes in again, and what is wrong is
// named.
#include "qna/config/detr.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "qna/config/network.h"
#include "qna/config/registry.h"
#include "qna/format/toml.h"
#include "tests/support/complaint.h"

namespace qna::config {
namespace {

using nlohmann::json;
using qna::testing::expect_complaint;

void expect_round_trips(const DetrConfig& config) {
  EXPECT_EQ(detr_config_from_json(to_json(config)), config);
  EXPECT_EQ(detr_config_from_json(format::parse_toml(to_toml(config), "test")), config)
      << to_toml(config);
}

// Nothing is at its default.
DetrConfig unusual_detr() {
  QnAViTConfig vit = find_model("qna_vit_pico").config;
  vit.classes = 0;
  return {.backbone = vit,
          .hidden = 64,
          .heads = 4,
          .encoder_blocks = 5,
          .decoder_blocks = 3,
          .feedforward = 96,
          .queries = 20,
          .classes = 3,
          .dropout = 0.25,
          .pre_norm = true,
          .positions = PositionKind::kLearned,
          .aux_loss = false,
          .qna = {.blocks = 3,
                  .replaces = 1,
                  .first = 2,
                  .heads = 2,
                  .queries = 4,
                  .kernel_size = {3, 5},
                  .mlp_ratio = 2.5}};
}

TEST(DetrConfig, RoundTrip) {
  expect_round_trips({});
  expect_round_trips(unusual_detr());
  for (const int64_t depth : {18, 50, 101}) {
    expect_round_trips({.backbone = ResNetConfig{.depth = depth, .dilation = depth > 18}});
  }
}

TEST(DetrConfig, FromAFile) {
  const std::string path = ::testing::TempDir() + "qna_detr_config_test.toml";
  std::ofstream(path) << "backbone = \"qna_vit_tiny\"\nclasses = 20\n[qna]\nblocks = 4\n";
  const auto config = std::get<DetrConfig>(read_network(path));
  EXPECT_EQ(std::get<QnAViTConfig>(config.backbone).base_dim, 64);
  EXPECT_EQ(std::get<QnAViTConfig>(config.backbone).classes, 0);
  EXPECT_EQ(config.backbone_features(), 512);
  EXPECT_EQ(config.backbone_stride(), 32);
  EXPECT_EQ(config.classes, 20);
  EXPECT_EQ(config.qna.blocks, 4);
  EXPECT_EQ(config.qna.replaces, 2);
  std::ofstream(path) << "backbone = \"resnet50\"\nclases = 20\n";
  expect_complaint([&] { read_network(path); }, {path.c_str(), "unknown key", "'clases'"});
  std::filesystem::remove(path);
}

TEST(DetrConfig, BackboneTable) {
  json table = to_json(find_model("qna_vit_pico").config);
  expect_complaint(
      [&] {
        detr_config_from_json({{"backbone", table}});
      },
      {"classes must be 0", "got 10"});
  table.erase("classes");
  EXPECT_EQ(detr_config_from_json({{"backbone", table}}),
            detr_config_from_json({{"backbone", "qna_vit_pico"}}));
  table["stagess"] = 1;
  expect_complaint(
      [&] {
        detr_config_from_json({{"backbone", table}});
      },
      {"backbone", "unknown key", "'stagess'"});
}

TEST(DetrConfig, WhatIsWrong) {
  const struct {
    json change;
    std::initializer_list<const char*> words;
  } rows[] = {
      {{{"backbone", "resnet34"}}, {"backbone", "resnet50", "qna_vit_tiny", "'resnet34'"}},
      {{{"backbone", 50}}, {"backbone", "name or a table", "50"}},
      {{{"backbone", "qna_vit_tiny"}, {"dilation", true}}, {"dilation", "ResNet"}},
      {{{"backbone", "resnet18"}, {"dilation", true}}, {"dilation", "18"}},
      {{{"hidden", 30}, {"heads", 5}}, {"hidden", "multiple of 4", "30"}},
      {{{"heads", 7}}, {"heads must divide hidden (256)", "7"}},
      {{{"classes", 0}}, {"classes", "from 1", "0"}},
      {{{"queries", 0}}, {"queries", "0"}},
      {{{"decoder_blocks", 0}}, {"decoder_blocks", "0"}},
      {{{"dropout", 1.0}}, {"dropout", "below 1"}},
      {{{"positions", "cosine"}}, {"positions", "sine, learned"}},
      {{{"hidden", "wide"}}, {"hidden", "wide"}},
      {{{"temperature", 0}}, {"temperature", "from 1", "0"}},
      {{{"waves", 0.5}}, {"waves", "from 1", "0.5"}},
      {{{"waves", 8}, {"positions", "learned"}}, {"waves", "learned"}},
      {{{"anchors", true}, {"positions", "learned"}}, {"positions must be sine", "anchors"}},
      {{{"qna", {{"block", 4}}}}, {"unknown key", "'qna.block'"}},
      {{{"qna", {{"blocks", 4}, {"replaces", 7}}}}, {"qna.replaces", "from 0 to 6", "7"}},
      {{{"qna", {{"blocks", 4}, {"first", 5}}}}, {"qna.first", "from 0 to 4", "5"}},
      {{{"qna", {{"blocks", 4}, {"heads", 3}}}}, {"qna.heads must divide hidden (256)", "3"}},
      {{{"qna", {{"blocks", 4}, {"mlp_ratio", 0}}}}, {"qna.mlp_ratio", "0"}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.change.dump());
    expect_complaint([&] { detr_config_from_json(row.change); }, row.words);
  }
}

}  // namespace
}  // namespace qna::config
