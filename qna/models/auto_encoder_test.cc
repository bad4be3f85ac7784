#include "qna/models/auto_encoder.h"

#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <nlohmann/json.hpp>

#include "tests/support/complaint.h"

namespace qna::models {
namespace {

using namespace config;

using torch::Tensor;

std::vector<AutoEncoderConfig> all_kinds() {
  std::vector<AutoEncoderConfig> configs;
  for (const auto encoder :
       {EncoderLayer::kConvStride, EncoderLayer::kConvPool, EncoderLayer::kQnA}) {
    for (const auto decoder :
         {DecoderLayer::kBilinear, DecoderLayer::kTransposed, DecoderLayer::kQnA}) {
      for (const int64_t factor : {2, 3, 4}) {
        configs.push_back({.encoder = encoder,
                           .decoder = decoder,
                           .widths = {8, 16, 12},
                           .factor = factor,
                           .heads = 4});
      }
    }
  }
  return configs;
}

TEST(AutoEncoder, EveryKindKeepsTheSizeOfAnyImage) {
  for (const AutoEncoderConfig& config : all_kinds()) {
    SCOPED_TRACE(to_json(config).dump());
    AutoEncoder model(config);
    for (const auto& [height, width] : {std::pair{32, 48}, {37, 50}}) {
      const Tensor x = torch::randn({2, height, width, 3});
      const Tensor code = model->encode(x);
      const auto up = [&](int64_t n) {
        for (int i = 0; i < 2; ++i) n = (n + config.factor - 1) / config.factor;
        return n;
      };
      EXPECT_EQ(code.sizes(), (std::vector<int64_t>{2, up(height), up(width), 12}));
      EXPECT_EQ(model->forward(x).sizes(), x.sizes());
    }
  }
}

TEST(AutoEncoder, ACodeCoversItsImage) {
  AutoEncoder model(AutoEncoderConfig{.widths = {8, 16, 12}, .heads = 4});
  const Tensor code = torch::randn({1, 3, 2, 12});
  EXPECT_EQ(model->decode(code, 9, 8).sizes(), (std::vector<int64_t>{1, 9, 8, 3}));
  for (const auto& [height, width] : {std::pair{13, 8}, {12, 9}, {0, 8}}) {
    const auto message = testing::complaint([&] { model->decode(code, height, width); });
    EXPECT_NE(message.find("cover"), std::string::npos);
  }
}

// Even behind many layers, what is cut off is cut before it is large.
TEST(AutoEncoder, SixteenLayersOnASmallImage) {
  AutoEncoder model(AutoEncoderConfig{.widths = std::vector<int64_t>(17, 4), .heads = 4});
  EXPECT_EQ(model->forward(torch::randn({1, 8, 8, 3})).sizes(), (std::vector<int64_t>{1, 8, 8, 3}));
}

TEST(AutoEncoder, ParametersAreCountedAndGetGradients) {
  for (const AutoEncoderConfig& config : all_kinds()) {
    SCOPED_TRACE(to_json(config).dump());
    AutoEncoder model(config);
    int64_t count = 0;
    for (const Tensor& parameter : model->parameters()) count += parameter.numel();
    EXPECT_EQ(parameter_count(config), count);
    model->forward(torch::randn({1, 32, 32, 3})).square().sum().backward();
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    }
  }
}

// Trained a little on one image, each kind comes near to it.
TEST(AutoEncoder, EveryKindLearns) {
  for (const AutoEncoderConfig& config : all_kinds()) {
    if (config.factor != 2) continue;
    SCOPED_TRACE(to_json(config).dump());
    torch::manual_seed(1);
    AutoEncoder model(config);
    const Tensor x = torch::rand({1, 4, 4, 3}).repeat_interleave(4, 1).repeat_interleave(4, 2);
    torch::optim::Adam adam(model->parameters(), 1e-2);
    double first = 0, last = 0;
    for (int step = 0; step < 200; ++step) {
      adam.zero_grad();
      const Tensor loss = (model->forward(x) - x).abs().mean();
      loss.backward();
      adam.step();
      last = loss.item<double>();
      if (step == 0) first = last;
    }
    EXPECT_LT(last, 0.5 * first);
  }
}

TEST(AutoEncoder, ConfigurationsAreReadWrittenAndChecked) {
  for (const AutoEncoderConfig& config : all_kinds()) {
    EXPECT_EQ(auto_encoder_config_from_json(to_json(config)), config);
  }
  EXPECT_EQ(AutoEncoderConfig{}.stride(), 32);
  const auto complaint = [](const nlohmann::json& json) {
    return testing::complaint([&] { auto_encoder_config_from_json(json); });
  };
  EXPECT_NE(complaint({{"encoder", "conv"}}).find("conv_in_max"), std::string::npos);
  EXPECT_NE(complaint({{"widths", {8}}}).find("widths"), std::string::npos);
  EXPECT_NE(complaint({{"widths", {9, 16}}}).find("heads"), std::string::npos);
  EXPECT_NE(complaint({{"factor", 1}}).find("factor"), std::string::npos);
  EXPECT_NE(complaint({{"kernel_size", 4}}).find("odd"), std::string::npos);
  EXPECT_NE(complaint({{"depth", 4}}).find("depth"), std::string::npos);
}

}  // namespace
}  // namespace qna::models
