// Configurations as JSON and TOML: what goes out comes in again, and what is wrong is named.
#include "qna/config/qna_vit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "qna/config/network.h"
#include "qna/config/registry.h"
#include "tests/support/complaint.h"

namespace qna::config {
namespace {

using nlohmann::json;
using qna::testing::complaint;
using qna::testing::expect_complaint;

// A file that is gone with the test.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& ending, const std::string& text)
      : path_(::testing::TempDir() + "qna_config_test" + ending) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void expect_round_trips(const QnAViTConfig& config) {
  EXPECT_EQ(config_from_json(to_json(config)), config);
  const TemporaryFile as_json(".json", to_json(config).dump());
  EXPECT_EQ(read_network(as_json.path()), NetworkConfig(config));
  const TemporaryFile as_toml(".toml", to_toml(config));
  EXPECT_EQ(read_network(as_toml.path()), NetworkConfig(config)) << to_toml(config);
}

// Nothing is at its default, and every pair has two values.
QnAViTConfig unusual_qna_vit() {
  return {.image_size = {96, 160},
          .in_channels = 1,
          .classes = 0,
          .base_dim = 48,
          .stem = StemKind::kResNet,
          .patch_size = 3,
          .stages = {{.attention_blocks = 2,
                      .qna_blocks = 3,
                      .attention_heads = 3,
                      .qna_heads = 6,
                      .kernel_size = {3, 5},
                      .queries = 4,
                      .window = {4, 9}},
                     {.attention_blocks = 1, .attention_heads = 8, .window = {0, 0}}},
          .local_mixer = LocalMixer::kSasa,
          .downsample = Downsample::kConvPool,
          .downsample_skip = DownsampleSkip::kAveragePool,
          .mlp_ratio = 2.5,
          .activation = kernels::Activation::kSilu,
          .attention_scale = AttentionScale::kPerQuery,
          .normalize_queries = false,
          .normalize_stop_gradient = true,
          .layer_scale = 1e-6,
          .drop_path = 0.1,
          .drop_path_downsample = false,
          .head = HeadKind::kQnAv2};
}

TEST(Config, RoundTripOfEveryModel) {
  for (const ModelEntry& entry : models()) {
    SCOPED_TRACE(entry.name);
    expect_round_trips(entry.config);
  }
}

TEST(Config, RoundTripOfEveryField) { expect_round_trips(unusual_qna_vit()); }

TEST(Config, RoundTripOfEveryChoice) {
  QnAViTConfig config = unusual_qna_vit();
  for (const auto stem :
       {StemKind::kPatch, StemKind::kConv, StemKind::kResNet, StemKind::kEfficientNet}) {
    config.stem = stem;
    expect_round_trips(config);
  }
  for (const auto way :
       {Downsample::kQnA, Downsample::kPatchMerging, Downsample::kConvPool, Downsample::kSasa,
        Downsample::kHalo, Downsample::kConv, Downsample::kDepthwise, Downsample::kConvPoolBlock}) {
    config.downsample = way;
    expect_round_trips(config);
  }
  for (const auto mixer : {LocalMixer::kQnA, LocalMixer::kSasa, LocalMixer::kWindow,
                           LocalMixer::kHalo, LocalMixer::kConv, LocalMixer::kDepthwise}) {
    config.local_mixer = mixer;
    expect_round_trips(config);
  }
  for (const auto skip : {DownsampleSkip::kConv, DownsampleSkip::kAveragePool}) {
    config.downsample_skip = skip;
    expect_round_trips(config);
  }
  for (const auto head : {HeadKind::kGap, HeadKind::kQnAv1, HeadKind::kQnAv2}) {
    config.head = head;
    expect_round_trips(config);
  }
  for (const auto activation :
       {kernels::Activation::kGeluTanh, kernels::Activation::kGelu, kernels::Activation::kRelu,
        kernels::Activation::kRelu6, kernels::Activation::kSilu}) {
    config.activation = activation;
    expect_round_trips(config);
  }
  using Scale = AttentionScale;
  for (const auto scale : {Scale::kPerTap, Scale::kPerQuery, Scale::kOnes, Scale::kAverage,
                           Scale::kSigned, Scale::kNone}) {
    config.attention_scale = scale;
    expect_round_trips(config);
  }
}

TEST(Config, WhatIsLeftOutHasItsDefault) {
  const QnAViTConfig config = config_from_json({{"stages", {json::object()}}});
  EXPECT_EQ(config, (QnAViTConfig{.stages = {StageConfig{}}}));
}

TEST(Config, OneNumberForTwo) {
  const QnAViTConfig config = config_from_json(
      {{"image_size", 64}, {"stages", {{{"kernel_size", 5}, {"window", {3, 4}}}}}});
  EXPECT_EQ(config.image_size, (std::array<int64_t, 2>{64, 64}));
  EXPECT_EQ(config.stages[0].kernel_size, (std::array<int64_t, 2>{5, 5}));
  EXPECT_EQ(config.stages[0].window, (std::array<int64_t, 2>{3, 4}));
}

TEST(Config, UnknownKeys) {
  json object = to_json(unusual_qna_vit());
  object["imagesize"] = 3;
  expect_complaint([&] { config_from_json(object); }, {"unknown key", "'imagesize'"});
  object = to_json(unusual_qna_vit());
  object["stages"][1]["qna_block"] = 3;
  expect_complaint([&] { config_from_json(object); }, {"unknown key", "'stages[1].qna_block'"});
}

// Every key with values of every wrong type: the message names the key and the value.
TEST(Config, WrongTypes) {
  const json good = to_json(unusual_qna_vit());
  const json values[] = {nullptr, true, 7, -1.5, "seven", {1, 2, 3}, {1, "2"}, json::object()};
  const auto fits = [](const json& field, const json& value) {
    if (field.is_boolean()) return value.is_boolean();
    if (field.is_number_float()) return value.is_number();
    if (field.is_number_integer() || field.is_array()) return value.is_number_integer();
    return false;  // of strings, only some
  };
  int wrong = 0;
  for (const auto& [key, field] : good.items()) {
    for (const json& value : values) {
      if (key == "stages" || fits(field, value)) continue;
      json object = good;
      object[key] = value;
      const std::string named = value.is_array() ? "got" : "got " + value.dump();
      expect_complaint([&] { config_from_json(object); }, {key.c_str(), "must be", named.c_str()});
      ++wrong;
    }
  }
  for (const auto& [key, field] : good["stages"][0].items()) {
    for (const json& value : values) {
      if (fits(field, value)) continue;
      json object = good;
      object["stages"][0][key] = value;
      const std::string name = "stages[0]." + key;
      expect_complaint([&] { config_from_json(object); }, {name.c_str(), "must be", "got"});
      ++wrong;
    }
  }
  EXPECT_GT(wrong, 150);
  for (const json& value : {json(nullptr), json(3), json("x"), json::object()}) {
    json object = good;
    object["stages"] = value;
    expect_complaint([&] { config_from_json(object); }, {"stages", "list", value.dump().c_str()});
    object["stages"] = {value.is_object() ? json(5) : value};
    expect_complaint([&] { config_from_json(object); }, {"stages[0]", "table"});
  }
  json object = good;
  object.erase("stages");
  expect_complaint([&] { config_from_json(object); }, {"stages", "nothing"});
  expect_complaint([&] { config_from_json(json::array()); }, {"table", "[]"});
}

struct Mistake {
  const char* key;  // of the whole, or of stages[0] where it begins with a dot
  json value;
  std::vector<const char*> words;
};

TEST(Config, OutOfRange) {
  const int64_t large = int64_t{1} << 40;
  const Mistake mistakes[] = {
      {"image_size", 0, {"image_size", "height", "from 1", "got 0"}},
      {"image_size", {32, -3}, {"image_size", "width", "from 1", "got -3"}},
      {"image_size", large, {"image_size", "to 65536", "got 1099511627776"}},
      {"in_channels", 0, {"in_channels", "from 1", "got 0"}},
      {"in_channels", large, {"in_channels", "to 4096"}},
      {"classes", -1, {"classes", "from 0", "got -1"}},
      {"classes", large, {"classes", "to 16777216"}},
      {"base_dim", 0, {"base_dim", "from 1", "got 0"}},
      {"base_dim", large, {"base_dim", "got 1099511627776"}},
      {"patch_size", 0, {"patch_size", "from 1", "got 0"}},
      {"patch_size", 2000, {"patch_size", "to 1024", "got 2000"}},
      {"stages", json::array(), {"stages", "from 1 to 8", "got 0"}},
      {"stages", json(9, json::object()), {"stages", "from 1 to 8", "got 9"}},
      {"mlp_ratio", 0, {"mlp_ratio", "got 0"}},
      {"mlp_ratio", -4, {"mlp_ratio", "got -4"}},
      {"mlp_ratio", 0.01, {"mlp_ratio", "got 0.01"}},
      {"mlp_ratio", 1e9, {"mlp_ratio", "to 64"}},
      {"layer_scale", -0.5, {"layer_scale", "from 0", "got -0.5"}},
      {"drop_path", 1, {"drop_path", "from 0 to 0.999", "got 1"}},
      {"drop_path", -0.1, {"drop_path", "got -0.1"}},
      {"drop_path", std::numeric_limits<double>::quiet_NaN(), {"drop_path", "got nan"}},
      {".attention_blocks", -1, {"stages[0].attention_blocks", "from 0", "got -1"}},
      {".attention_blocks", large, {"stages[0].attention_blocks", "to 1000"}},
      {".qna_blocks", -1, {"stages[0].qna_blocks", "from 0", "got -1"}},
      {".qna_blocks", 1001, {"stages[0].qna_blocks", "to 1000", "got 1001"}},
      {".attention_heads", 0, {"stages[0].attention_heads", "from 1", "got 0"}},
      {".attention_heads", 7, {"stages[0].attention_heads", "divide", "48", "got 7"}},
      {".qna_heads", 0, {"stages[0].qna_heads", "from 1", "got 0"}},
      {".qna_heads", 5, {"stages[0].qna_heads", "divide", "48", "got 5"}},
      {".queries", 0, {"stages[0].queries", "from 1", "got 0"}},
      {".queries", 5000, {"stages[0].queries", "to 1024", "got 5000"}},
      {".kernel_size", 0, {"stages[0].kernel_size", "from 1", "got 0"}},
      {".kernel_size", {3, 2000}, {"stages[0].kernel_size", "to 1023", "got 2000"}},
      {".window", -7, {"stages[0].window", "from 0", "got -7"}},
      {".window", {0, 7}, {"stages[0].window", "both", "got 0 x 7"}},
      {".window", {7, 0}, {"stages[0].window", "both", "got 7 x 0"}},
      {".window", 5000, {"stages[0].window", "to 4096", "got 5000"}},
  };
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(::testing::Message() << mistake.key << " " << mistake.value.dump());
    json object = to_json(unusual_qna_vit());
    if (mistake.key[0] == '.') {
      object["stages"][0][mistake.key + 1] = mistake.value;
    } else {
      object[mistake.key] = mistake.value;
    }
    const std::string said = complaint([&] { config_from_json(object); });
    EXPECT_EQ(said.rfind("model configuration: ", 0), 0u) << said;
    for (const char* word : mistake.words) {
      EXPECT_NE(said.find(word), std::string::npos) << "no '" << word << "' in: " << said;
    }
  }
}

// A signed scale needs pairs of queries and heads; it is the choices together that do not fit.
TEST(Config, SignedScaleNeedsPairs) {
  QnAViTConfig config{.base_dim = 9,
                      .stages = {{.qna_blocks = 1, .qna_heads = 3, .queries = 1}},
                      .attention_scale = AttentionScale::kSigned};
  expect_complaint([&] { check(config); }, {"stages[0]", "signed", "1 x 3"});
  config.stages[0].queries = 2;
  EXPECT_NO_THROW(check(config));
}

// Shifted windows have a size and heads of their own.
TEST(Config, WindowsAsLocalMixer) {
  QnAViTConfig config{.base_dim = 8,
                      .stages = {{.qna_blocks = 1, .attention_heads = 3, .qna_heads = 4}},
                      .local_mixer = LocalMixer::kSasa};
  EXPECT_NO_THROW(check(config));
  config.local_mixer = LocalMixer::kWindow;
  expect_complaint([&] { check(config); }, {"stages[0].attention_heads", "divide", "8", "got 3"});
  config.stages[0].attention_heads = 4;
  EXPECT_NO_THROW(check(config));
  config.stages[0].window = {0, 0};
  expect_complaint([&] { check(config); }, {"stages[0].window", "'window'", "got 0"});
}

TEST(Config, Files) {
  expect_complaint([] { read_network("no/such/file.toml"); }, {"no/such/file.toml", "cannot read"});
  const TemporaryFile other(".yaml", "stages: []");
  expect_complaint([&] { read_network(other.path()); }, {".yaml", ".toml or .json"});
  const TemporaryFile broken_toml(".toml", "classes = 3\nbase_dim = = 4\n");
  expect_complaint([&] { read_network(broken_toml.path()); }, {".toml", "line 2"});
  const TemporaryFile broken_json(".json", "{\"classes\": ");
  expect_complaint([&] { read_network(broken_json.path()); }, {".json", "parse error"});
  const TemporaryFile date(".toml", "classes = 1979-05-27\n[[stages]]\n");
  expect_complaint([&] { read_network(date.path()); }, {".toml", "dates"});
  const TemporaryFile wrong(".toml", "clases = 3\n[[stages]]\n");
  expect_complaint([&] { read_network(wrong.path()); }, {wrong.path().c_str(), "'clases'"});
  const TemporaryFile empty(".toml", "");
  EXPECT_NE(complaint([&] { read_network(empty.path()); }), "");
}

}  // namespace
}  // namespace qna::config
