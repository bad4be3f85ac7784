// Which layers there are, and that each is shown what it sees in the network.
#include "qna/models/attention_maps.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "qna/base/error.h"
#include "qna/models/registry.h"
#include "qna/ops/tensors_test.h"

namespace qna::models {
namespace {

using torch::Tensor;

QnAViT tiny_model(HeadKind head = HeadKind::kGap) {
  torch::manual_seed(1);
  QnAViTConfig config = find_model("qna_vit_pico").config;
  config.classes = 5;
  config.head = head;
  QnAViT model(config);
  model->eval();
  return model;
}

std::vector<std::string> names(const std::vector<AttentionLayer>& layers) {
  std::vector<std::string> out;
  for (const AttentionLayer& layer : layers) out.push_back(layer.name);
  return out;
}

TEST(AttentionLayers, AreListedInOrder) {
  const QnAViT model = tiny_model(HeadKind::kQnAv1);
  EXPECT_EQ(
      names(attention_layers(model)),
      (std::vector<std::string>{"stages.0.blocks.0", "stages.0.downsample", "stages.1.blocks.0",
                                "stages.1.downsample", "stages.2.blocks.0", "stages.2.blocks.1",
                                "stages.2.downsample", "stages.3.blocks.0", "head"}));
  const AttentionLayer layer = find_attention_layer(model, "stages.2.blocks.0");
  EXPECT_FALSE(layer.learned_queries);
  EXPECT_EQ(layer.heads, 4);
  EXPECT_EQ(layer.stride, 8);
  EXPECT_EQ(find_attention_layer(model, "2.downsample").heads, 16);
  EXPECT_EQ(find_attention_layer(model, "2.1").name, "stages.2.blocks.1");
}

TEST(AttentionLayers, TypicalOnes) {
  EXPECT_EQ(names(typical_attention_layers(tiny_model())),
            (std::vector<std::string>{"stages.0.blocks.0", "stages.1.blocks.0", "stages.2.blocks.1",
                                      "stages.3.blocks.0"}));
}

TEST(AttentionLayers, UnknownNamesAreAnsweredWithTheNames) {
  try {
    find_attention_layer(tiny_model(), "7.1");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'7.1'"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("2.downsample"), std::string::npos);
  }
  EXPECT_THROW(find_attention_layer(tiny_model(), "head"), Error);  // no QnA in it
}

TEST(AttentionOf, LayersSeeWhatTheySeeInTheNetwork) {
  const torch::NoGradGuard no_grad;
  QnAViT model = tiny_model();
  const Tensor images = torch::randn({2, 37, 50, 3});
  const auto found =
      attention_of(model, images, {.layers = {"2.0", "0.downsample", "1.0"}, .kernel_side = 24});
  ASSERT_EQ(found.size(), 3);

  Tensor map = model->stages[0]->forward(model->stem->forward(images), {}, false);
  nn::Block& down = model->stages[0]->downsample;
  EXPECT_EQ(found[0].layer.name, "stages.0.downsample");
  const nn::AttentionMaps expected = nn::attention_maps(down->qna, down->norm1->forward(map));
  EXPECT_TRUE(found[0].maps.attention.allclose(expected.attention, 1e-4, 1e-5));
  EXPECT_TRUE(found[0].maps.weight.allclose(expected.weight, 1e-4, 1e-5));
  EXPECT_EQ(found[0].maps.attention.sizes(), (std::vector<int64_t>{2, 2, 4, 19, 25}));
  // 10 x 13 windows of 3 x 3 would be 39 wide, so of every second.
  EXPECT_EQ(found[0].every, 2);
  EXPECT_EQ(found[0].kernels.attention.sizes(), (std::vector<int64_t>{2, 2, 4, 5, 7, 3, 3}));

  map = model->stages[0]->forward_downsample(map, {}, false);
  EXPECT_EQ(found[1].layer.name, "stages.1.blocks.0");
  nn::Block& block = model->stages[1]->blocks[0];
  EXPECT_TRUE(found[1].maps.attention.allclose(
      nn::attention_maps(block->qna, block->norm1->forward(map)).attention, 1e-4, 1e-5));

  EXPECT_EQ(found[2].layer.name, "stages.2.blocks.0");
  EXPECT_EQ(found[2].maps.attention.sizes(), (std::vector<int64_t>{2, 1, 4, 5, 7}));
  EXPECT_FALSE(found[2].maps.weight.defined());
  EXPECT_FALSE(found[2].kernels.attention.defined());
}

TEST(AttentionOf, TheHead) {
  QnAViT model = tiny_model(HeadKind::kQnAv2);
  const Tensor images = torch::randn({1, 64, 40, 3});
  const auto found = attention_of(model, images, {.layers = {"head"}});
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].maps.attention.sizes().slice(3), (std::vector<int64_t>{4, 3}));
  // One window over the map.
  EXPECT_LT((found[0].maps.attention.sum({3, 4}) - 1).abs().max().item<double>(), 1e-5);
}

TEST(AttentionOf, Mistakes) {
  QnAViT model = tiny_model();
  EXPECT_THROW(attention_of(model, torch::randn({1, 32, 32, 1}), {.layers = {"0.0"}}), Error);
  EXPECT_THROW(attention_of(model, torch::randn({1, 32, 32, 3}), {.layers = {"9.0"}}), Error);
  EXPECT_TRUE(attention_of(model, torch::randn({1, 32, 32, 3}), {}).empty());
}

// What is neither QnA nor plain self-attention has no maps to show, and says so.
TEST(AttentionLayers, OfOtherMixers) {
  QnAViTConfig config = find_model("qna_vit_pico").config;
  config.local_mixer = LocalMixer::kSasa;
  config.downsample = Downsample::kConv;
  const QnAViT model(config);
  EXPECT_EQ(names(attention_layers(model)),
            (std::vector<std::string>{"stages.2.blocks.0", "stages.3.blocks.0"}));
  ops::testing::expect_complaint([&] { find_attention_layer(model, "stages.0.blocks.0"); },
                                 {"stages.0.blocks.0", "2.0, 3.0"});
  for (StageConfig& stage : config.stages) stage.attention_blocks = 0;
  EXPECT_TRUE(attention_layers(QnAViT(config)).empty());
  ops::testing::expect_complaint([&] { find_attention_layer(QnAViT(config), "0.0"); },
                                 {"0.0", "neither QnA nor self-attention"});
}

}  // namespace
}  // namespace qna::models
