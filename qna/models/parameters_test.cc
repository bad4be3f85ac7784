// What config/ says of a network's tensors is what its modules have: names, shapes, kinds.
#include "qna/config/parameters.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "qna/config/detectors.h"
#include "qna/config/network.h"
#include "qna/config/registry.h"
#include "qna/models/auto_encoder.h"
#include "qna/models/detr.h"
#include "tests/support/random_config.h"

namespace qna::models {
namespace {

using config::Parameter;

std::string text_of(at::IntArrayRef shape, Parameter::Kind kind) {
  std::string text = kind == Parameter::Kind::kLearned     ? "learned"
                     : kind == Parameter::Kind::kStatistic ? "statistic"
                                                           : "count";
  for (const int64_t size : shape) text += " " + std::to_string(size);
  return text;
}

void expect_parameters(const torch::nn::Module& model, const config::Parameters& parameters) {
  std::map<std::string, std::string> expected;
  int64_t learned = 0;
  for (const auto& item : model.named_parameters()) {
    expected[item.key()] = text_of(item.value().sizes(), Parameter::Kind::kLearned);
    learned += item.value().numel();
  }
  for (const auto& item : model.named_buffers()) {
    expected[item.key()] =
        text_of(item.value().sizes(), item.value().is_floating_point() ? Parameter::Kind::kStatistic
                                                                       : Parameter::Kind::kCount);
  }
  std::map<std::string, std::string> found;
  for (const Parameter& parameter : parameters) {
    const bool first =
        found.emplace(parameter.name, text_of(parameter.shape, parameter.kind)).second;
    EXPECT_TRUE(first) << parameter.name << " twice";
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(config::learned_count(parameters), learned);
}

TEST(Parameters, EveryModelOfTheList) {
  for (const config::ModelEntry& entry : config::models()) {
    SCOPED_TRACE(entry.name);
    expect_parameters(*QnAViT(entry.config), config::parameters(entry.config));
  }
}

TEST(Parameters, EveryDetectorOfTheList) {
  for (const config::DetectorEntry& entry : config::detectors()) {
    SCOPED_TRACE(entry.name);
    expect_parameters(*Detr(entry.config), config::parameters(entry.config));
  }
}

TEST(Parameters, ResNets) {
  for (const ResNetConfig& config :
       {ResNetConfig{.depth = 18}, ResNetConfig{.depth = 50, .classes = 10},
        ResNetConfig{.depth = 50, .dilation = true}, ResNetConfig{.depth = 101}}) {
    SCOPED_TRACE(config.depth);
    expect_parameters(*ResNet(config), config::parameters(config));
  }
}

TEST(Parameters, AutoEncoders) {
  for (const int64_t factor : {2, 3}) {
    for (const AutoEncoderConfig& config : testing::all_auto_encoders(factor)) {
      SCOPED_TRACE(config::to_json(config).dump());
      expect_parameters(*AutoEncoder(config), config::parameters(config));
    }
  }
}

TEST(Parameters, RandomNetworks) {
  testing::RandomConfig random(52);
  for (int n = 0; n < 120; ++n) {
    const QnAViTConfig config = random.qna_vit();
    SCOPED_TRACE(config::to_toml(config));
    expect_parameters(*QnAViT(config), config::parameters(config));
  }
  for (int n = 0; n < 30; ++n) {
    const DetrConfig config = random.detr();
    SCOPED_TRACE(config::to_toml(config));
    expect_parameters(*Detr(config), config::parameters(config));
  }
}

}  // namespace
}  // namespace qna::models
