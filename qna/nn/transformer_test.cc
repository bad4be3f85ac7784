// DETR's transformer beside LibTorch's modules: attention, pre-norm, masks, positions, QnA blocks.
#include "qna/nn/transformer.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <numbers>

#include "qna/nn/position_code.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::nn {
namespace {

using ops::testing::expect_complaint;
using ops::testing::near;
using torch::Tensor;

// No parameter is at its initial value.
template <typename Module>
Module shaken(Module module) {
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : module->parameters()) {
    parameter.add_(torch::randn_like(parameter), 0.1);
  }
  module->eval();
  return module;
}

TransformerOptions small() {
  return {.features = 16,
          .heads = 4,
          .encoder_blocks = 3,
          .decoder_blocks = 2,
          .feedforward = 24,
          .qna_block = {.qna = QnAOptions{.in_features = 16, .heads = 4}}};
}

// [B, H, W]: the first image fills its map, the second is 3 x 2.
Tensor corner_mask(int64_t height, int64_t width) {
  Tensor mask = torch::ones({2, height, width}, torch::kBool);
  mask[1].slice(0, 3).fill_(false);
  mask[1].slice(1, 2).fill_(false);
  return mask;
}

// ---- attention ----

TEST(MultiheadAttention, AsLibTorchs) {
  torch::manual_seed(1);
  auto ours = shaken(MultiheadAttention(MultiheadAttentionOptions{.features = 16, .heads = 4}));
  torch::nn::MultiheadAttention theirs(16, 4);
  theirs->eval();
  {
    const torch::NoGradGuard no_grad;
    auto parameters = theirs->named_parameters();
    ASSERT_EQ(parameters.size(), ours->named_parameters().size());
    for (const auto& item : ours->named_parameters()) parameters[item.key()].copy_(item.value());
  }
  const Tensor query = torch::randn({2, 5, 16}), key = torch::randn({2, 7, 16}),
               value = torch::randn({2, 7, 16});
  Tensor mask = torch::ones({2, 7}, torch::kBool);
  mask[1].slice(0, 4).fill_(false);
  for (const Tensor& keys : {Tensor(), mask}) {
    const Tensor mixed =
        std::get<0>(theirs->forward(query.transpose(0, 1), key.transpose(0, 1),
                                    value.transpose(0, 1), keys.defined() ? ~keys : keys));
    EXPECT_TRUE(near(ours->forward(query, key, value, keys), mixed.transpose(0, 1), 1e-5));
  }
  // One product for queries and keys that are the same.
  EXPECT_TRUE(near(ours->forward(key, key, value, mask),
                   ours->forward(key, key.clone(), value, mask), 1e-5));
}

TEST(MultiheadAttention, DropoutInTrainingOnly) {
  torch::manual_seed(2);
  auto layer = shaken(
      MultiheadAttention(MultiheadAttentionOptions{.features = 8, .heads = 2, .dropout = 0.5}));
  const Tensor x = torch::randn({2, 6, 8});
  EXPECT_TRUE(layer->forward(x, x, x).equal(layer->forward(x, x, x)));
  layer->train();
  EXPECT_FALSE(layer->forward(x, x, x).equal(layer->forward(x, x, x)));
}

TEST(MultiheadAttention, WhatIsWrong) {
  expect_complaint(
      [] { MultiheadAttention(MultiheadAttentionOptions{.features = 10, .heads = 4}); },
      {"heads must divide features (10)", "4"});
  expect_complaint([] { MultiheadAttention(MultiheadAttentionOptions{}); }, {"features", "0"});
}

// ---- positions ----

TEST(PositionCode, SinesOfAnImageDoNotDependOnItsPadding) {
  PositionCode code(PositionKind::kSine, 16);
  const Tensor mask = corner_mask(5, 6);
  const Tensor both = code->forward(torch::zeros({2, 5, 6, 16}), mask);
  const Tensor alone = code->forward(torch::zeros({1, 3, 2, 16}));
  EXPECT_TRUE(near(both[1].slice(0, 0, 3).slice(1, 0, 2), alone[0], 1e-6));
  EXPECT_TRUE(near(both[0], code->forward(torch::zeros({1, 5, 6, 16}))[0], 1e-6));
}

TEST(PositionCode, OfAnyPlace) {
  PositionCode code(PositionKind::kSine, 16, SineOptions{.waves = 3, .temperature = 20});
  const Tensor map = code->forward(torch::zeros({1, 4, 5, 16}));
  const Tensor places = torch::tensor({{2 / 5.0, 1 / 4.0}, {5 / 5.0, 3 / 4.0}});  // x, y
  const Tensor at = code->at(places);
  EXPECT_TRUE(near(at[0], map[0][0][1], 1e-5));
  EXPECT_TRUE(near(at[1], map[0][2][4], 1e-5));
  const double angle = 2 / 5.0 * 2 * std::numbers::pi * 3;
  EXPECT_NEAR(at[0][8 + 0].item<double>(), std::sin(angle), 1e-5);
  EXPECT_NEAR(at[0][8 + 7].item<double>(), std::cos(angle / std::pow(20, 6 / 8.0)), 1e-5);
  PositionCode centred(PositionKind::kSine, 16, SineOptions{.waves = 3, .centred = true});
  const Tensor middle = centred->forward(torch::zeros({1, 4, 5, 16}))[0][0][1];
  EXPECT_TRUE(near(centred->at(torch::tensor({1.5 / 5, 0.5 / 4})), middle, 1e-5));
  expect_complaint([] { PositionCode(PositionKind::kLearned, 8)->at(torch::zeros({2})); },
                   {"only sines"});
}

TEST(PositionCode, Learned) {
  PositionCode code(PositionKind::kLearned, 8);
  const Tensor map = code->forward(torch::zeros({3, 2, 60, 8}));
  EXPECT_EQ(map.sizes(), (at::IntArrayRef{1, 2, 60, 8}));
  // Columns first, then rows, as in DETR.
  EXPECT_TRUE(map[0][1][7].slice(0, 0, 4).equal(code->col_embed->weight[7]));
  EXPECT_TRUE(map[0][1][7].slice(0, 4).equal(code->row_embed->weight[1]));
  EXPECT_TRUE(map[0][1][59].equal(map[0][1][49]));
  EXPECT_EQ(code->named_parameters().keys(),
            (std::vector<std::string>{"row_embed.weight", "col_embed.weight"}));
  expect_complaint([] { PositionCode(PositionKind::kSine, 6); }, {"multiple of 4", "6"});
}

// ---- layers ----

TEST(Transformer, PreNormAndPostNormAsWrittenDown) {
  for (const bool pre_norm : {false, true}) {
    torch::manual_seed(3);
    TransformerOptions options = small();
    options.pre_norm = pre_norm;
    auto layer = shaken(EncoderLayer(options));
    auto decoder = shaken(DecoderLayer(options));
    const Tensor x = torch::randn({2, 6, 16}), positions = torch::randn({1, 6, 16});
    const auto attend = [&](Tensor y) {
      return layer->self_attn->forward(y + positions, y + positions, y);
    };
    const auto mlp = [](auto& of, Tensor y) {
      return of->linear2->forward(of->linear1->forward(y).relu());
    };
    Tensor y;
    if (pre_norm) {
      y = x + attend(layer->norm1->forward(x));
      y = y + mlp(layer, layer->norm2->forward(y));
    } else {
      y = layer->norm1->forward(x + attend(x));
      y = layer->norm2->forward(y + mlp(layer, y));
    }
    EXPECT_TRUE(near(layer->forward(x, positions, {}), y, 1e-5));

    const Tensor start = torch::randn({2, 3, 16}), queries = torch::randn({3, 16});
    const auto each_other = [&](Tensor z) {
      return decoder->self_attn->forward(z + queries, z + queries, z);
    };
    const auto look = [&](Tensor z) {
      return decoder->multihead_attn->forward(z + queries, x + positions, x);
    };
    Tensor z;
    if (pre_norm) {
      z = start + each_other(decoder->norm1->forward(start));
      z = z + look(decoder->norm2->forward(z));
      z = z + mlp(decoder, decoder->norm3->forward(z));
    } else {
      z = decoder->norm1->forward(start + each_other(start));
      z = decoder->norm2->forward(z + look(z));
      z = decoder->norm3->forward(z + mlp(decoder, z));
    }
    EXPECT_TRUE(near(decoder->forward(start, {queries, x, x + positions, {}}), z, 1e-5));
  }
}

TEST(Transformer, WhereTheEncoderHasANorm) {
  TransformerOptions options = small();
  EXPECT_FALSE(Encoder(options)->norm);
  options.qna_blocks = 4;
  options.qna_replaced = 2;
  EXPECT_FALSE(Encoder(options)->norm);
  options.qna_first = 1;  // now the QnA blocks are the last
  EXPECT_TRUE(Encoder(options)->norm);
  options.qna_blocks = 0;
  options.qna_replaced = 0;
  options.pre_norm = true;
  EXPECT_TRUE(Encoder(options)->norm);
}

TEST(Transformer, QnABlocksStandWhereTheyAreWanted) {
  for (int64_t first = 0; first <= 2; ++first) {
    TransformerOptions options = small();
    options.qna_blocks = 2;
    options.qna_replaced = 1;
    options.qna_first = first;
    Encoder encoder(options);
    ASSERT_EQ(encoder->layers->size(), 4u);
    for (int64_t i = 0; i < 4; ++i) {
      const bool qna = i == first || i == first + 1;
      EXPECT_EQ(encoder->layers->ptr(i)->as<BlockImpl>() != nullptr, qna) << first << ", " << i;
    }
  }
  TransformerOptions options = small();
  options.qna_blocks = 4;
  options.qna_replaced = 2;
  options.qna_first = 2;
  expect_complaint([&] { Transformer{options}; }, {"3 encoder blocks", "2 from block 2"});
}

// An image beside a larger one gives what it gives alone, whatever stands in its padding.
TEST(Transformer, PaddingIsNotSeen) {
  for (const int64_t qna_blocks : {0, 2}) {
    for (const bool pre_norm : {false, true}) {
      torch::manual_seed(4);
      TransformerOptions options = small();
      options.pre_norm = pre_norm;
      options.qna_blocks = qna_blocks;
      options.qna_replaced = qna_blocks / 2;
      auto model = shaken(Transformer(options));
      const Tensor mask = corner_mask(5, 6);
      const Tensor map = torch::randn({2, 5, 6, 16}), positions = torch::randn({2, 5, 6, 16});
      const Tensor queries = torch::randn({4, 16});
      const auto cut = [](const Tensor& tensor) {
        return tensor.slice(0, 1, 2).slice(1, 0, 3).slice(2, 0, 2).contiguous();
      };
      for (const bool gradients : {false, true}) {
        const torch::AutoGradMode mode(gradients);
        const Tensor memory = model->forward_encoder(map, positions, mask);
        const Tensor alone = model->forward_encoder(cut(map), cut(positions));
        EXPECT_TRUE(near(cut(memory), alone, 1e-5));
        EXPECT_TRUE(near(model->forward_decoder(memory, positions, mask, queries).slice(1, 1, 2),
                         model->forward_decoder(alone, cut(positions), {}, queries), 1e-5));
      }
    }
  }
}

TEST(Transformer, CopiesAreOfTheirOwn) {
  torch::manual_seed(5);
  TransformerOptions options = small();
  options.qna_blocks = 2;
  options.qna_replaced = 1;
  auto model = shaken(Transformer(options));
  const Tensor map = torch::randn({1, 4, 4, 16}), positions = torch::randn({1, 4, 4, 16});
  const torch::NoGradGuard no_grad;
  const Tensor expected = model->forward_encoder(map, positions);
  Transformer copy(std::dynamic_pointer_cast<TransformerImpl>(model->clone()));
  EXPECT_TRUE(near(copy->forward_encoder(map, positions), expected, 1e-6));
  for (Tensor& parameter : model->parameters()) parameter.zero_();
  EXPECT_TRUE(near(copy->forward_encoder(map, positions), expected, 1e-6));
}

}  // namespace
}  // namespace qna::nn
