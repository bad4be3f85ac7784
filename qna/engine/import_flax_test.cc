// The authors' checkpoints: every array has its place, and what does not fit is listed.
#include "qna/engine/import_flax.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "qna/config/blocks.h"
#include "qna/config/parameters.h"
#include "qna/config/registry.h"
#include "qna/engine/model_file.h"
#include "tests/support/complaint.h"

namespace qna::engine {
namespace {

using format::FlaxState;
using qna::testing::complaint;
using qna::testing::expect_complaint;
using Shape = std::vector<int64_t>;

struct Array {
  Shape shape;
  std::vector<float> values;
};
using Weights = std::map<std::string, Array>;  // by our names

Weights random_weights(const config::QnAViTConfig& config) {
  std::mt19937 random(81);
  std::normal_distribution<float> normal;
  Weights weights;
  for (const config::Parameter& p : config::parameters(config)) {
    if (p.kind == config::Parameter::Kind::kCount) continue;
    size_t numbers = 1;
    for (const int64_t size : p.shape) numbers *= size;
    Array& array = weights[p.name] = {p.shape, std::vector<float>(numbers)};
    for (float& value : array.values) value = normal(random);
  }
  return weights;
}

// ---- a network as the authors' code would have written it: the import backwards ----

class Exporter {
 public:
  Exporter(const config::QnAViTConfig& config, Weights weights) : weights_(std::move(weights)) {
    const bool patch = config.stem == config::StemKind::kPatch;
    put_convolution(std::string("StemBlock_0.") + (patch ? "conv_1x1" : "conv_7x7") + ".kernel",
                    "stem.conv.weight");
    if (!patch) {
      put_norm("StemBlock_0.BatchNorm_0", "stem.norm");
      put("StemBlock_0.BatchNorm_0.mean", weights_.at("stem.norm.running_mean"), "batch_stats.");
      put("StemBlock_0.BatchNorm_0.var", weights_.at("stem.norm.running_var"), "batch_stats.");
    }
    for (size_t i = 0; i < config.stages.size(); ++i) {
      const int64_t attention = config.stages[i].attention_blocks,
                    qna = config.stages[i].qna_blocks;
      for (int64_t n = 0; n < attention + qna; ++n) {
        put_block(n < attention ? fmt::format("LSAStage_{}.MSA_Block_{}", i, n + 1)
                                : fmt::format("QnAStage_{}.QnA_Block_{}", i, n - attention + 1),
                  fmt::format("stages.{}.blocks.{}", i, n), config,
                  n < attention ? config.stages[i].attention_heads : 0);
      }
      if (i + 1 < config.stages.size()) {
        put_block(fmt::format("QnAStage_{}.QnA_Block_{}_stride_2", i, qna + 1),
                  fmt::format("stages.{}.downsample", i), config, 0);
      }
    }
    put_norm("ClassificationHead_0.LayerNorm_0", "head.norm");
    if (has("head.qna.query"))
      put_qna("ClassificationHead_0", "head", config::head_qna(config).attention_scale);
    put_linear("ClassificationHead_0.head_logits", "head.fc");
    state["step"] = {format::DType::kI64, {}, std::vector<std::byte>(8)};
  }
  FlaxState state;

 private:
  bool has(const std::string& name) const { return weights_.contains(name); }
  void put(const std::string& name, const Array& array, const std::string& root = "params.") {
    const auto bytes = std::as_bytes(std::span<const float>(array.values));
    state[root + name] = {format::DType::kF32, array.shape, {bytes.begin(), bytes.end()}};
  }
  void put_as(const std::string& name, const std::string& ours, Shape shape) {
    put(name, {std::move(shape), weights_.at(ours).values});
  }
  void put_same(const std::string& name, const std::string& ours) { put(name, weights_.at(ours)); }
  // The first dimensions, `rows` numbers in all, go behind the others.
  Array turned(const std::string& ours, int64_t rows) {
    const Array& from = weights_.at(ours);
    const auto columns = static_cast<int64_t>(from.values.size()) / rows;
    Array to{{columns, rows}, {}};
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < rows; ++r) to.values.push_back(from.values[r * columns + c]);
    return to;
  }
  // OIHW -> HWIO
  void put_convolution(const std::string& name, const std::string& ours) {
    const Shape shape = weights_.at(ours).shape;
    Array to = turned(ours, shape[0] * shape[1]);  // [H W, O I]
    Array out{{shape[2], shape[3], shape[1], shape[0]}, {}};
    for (int64_t place = 0; place < shape[2] * shape[3]; ++place)
      for (int64_t i = 0; i < shape[1]; ++i)
        for (int64_t o = 0; o < shape[0]; ++o)
          out.values.push_back(to.values[(place * shape[0] + o) * shape[1] + i]);
    put(name, out);
  }
  void put_norm(const std::string& name, const std::string& ours) {
    put_same(name + ".scale", ours + ".weight");
    put_same(name + ".bias", ours + ".bias");
  }
  void put_linear(const std::string& name, const std::string& ours) {
    put(name + ".kernel", turned(ours + ".weight", weights_.at(ours + ".weight").shape[0]));
    put_same(name + ".bias", ours + ".bias");
  }
  void put_qna(const std::string& block, const std::string& our_block,
               config::AttentionScale kind) {
    const std::string name = block + ".FusedKQnA_0.", ours = our_block + ".qna.";
    put_same(name + "query", ours + "query");
    put_same(name + "Wk", ours + "key_weight");
    put_same(name + "to_v.kernel", ours + "value_weight");
    put_same(name + "to_out.kernel", ours + "out_weight");
    const Shape taps = weights_.at(ours + "relative_bias").shape;  // [kh, kw, queries, heads]
    put_as(name + "rpe_bias", ours + "relative_bias", {taps[0] * taps[1], taps[2] * taps[3]});
    if (!has(ours + "attention_scale")) return;
    const std::string scale = ours + "attention_scale";
    if (weights_.at(scale).shape.size() == 2) {
      put_same(name + "attn_scale_weights", scale);
    } else if (kind == config::AttentionScale::kOnes) {
      put_as(name + "attn_scale_pos", scale, {taps[0] * taps[1], taps[2], taps[3]});
    } else {
      put_as(name + "attn_scale_weights", scale, {1, 1, taps[0] * taps[1], taps[2] * taps[3]});
    }
  }
  void put_attention(const std::string& block, const std::string& our_block, int64_t heads) {
    const std::string name = block + ".MultiHeadSelfAttention_0.", ours = our_block + ".attention.";
    const Array& qkv = weights_.at(ours + "qkv.weight");  // [(q k v), heads, dim, features]
    const int64_t features = qkv.shape[1], dim = features / heads;
    Array to{{features, 3 * features}, {}};
    for (int64_t f = 0; f < features; ++f)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t which = 0; which < 3; ++which)
          for (int64_t d = 0; d < dim; ++d)
            to.values.push_back(qkv.values[((which * heads + h) * dim + d) * features + f]);
    put(name + "to_qkv.kernel", to);
    put(name + "to_out.kernel", turned(ours + "proj.weight", features));
    const Shape bias = weights_.at(ours + "relative_bias").shape;
    put_as(name + "RelativePositionalEmbedding_0.rpe_bias", ours + "relative_bias",
           {bias[0] * bias[1], bias[2]});
  }
  // attention_heads: 0 for a block of QnA.
  void put_block(const std::string& name, const std::string& ours,
                 const config::QnAViTConfig& config, int64_t attention_heads) {
    put_norm(name + ".LayerNorm_0", ours + ".norm1");
    put_norm(name + ".LayerNorm_1", ours + ".norm2");
    put_linear(name + ".MlpBlock_0.Dense_0", ours + ".mlp.fc1");
    put_linear(name + ".MlpBlock_0.Dense_1", ours + ".mlp.fc2");
    if (has(ours + ".scale1")) {
      put_same(name + ".LayerScale_0.scale_param", ours + ".scale1");
      put_same(name + ".LayerScale_1.scale_param", ours + ".scale2");
    }
    if (has(ours + ".skip.weight")) {
      const bool pool = config.downsample_skip == config::DownsampleSkip::kAveragePool;
      put_convolution(name + (pool ? ".AvgPool1x1Conv_0" : "") + ".Conv_0.kernel",
                      ours + ".skip.weight");
    }
    if (attention_heads > 0) {
      put_attention(name, ours, attention_heads);
    } else {
      put_qna(name, ours, config.attention_scale);
    }
  }
  Weights weights_;
};

FlaxState exported(const config::QnAViTConfig& config) {
  return Exporter(config, random_weights(config)).state;
}

config::QnAViTConfig small_config() {
  return {.image_size = {32, 32},
          .classes = 4,
          .base_dim = 8,
          .stages = {{.qna_blocks = 1, .qna_heads = 2},
                     {.attention_blocks = 1, .qna_blocks = 1, .qna_heads = 4, .window = {3, 2}}}};
}

void expect_comes_back(const config::QnAViTConfig& config) {
  const Weights expected = random_weights(config);
  const FlaxImport imported = import_flax(exported(config), config, "test");
  EXPECT_EQ(imported.ignored, std::vector<std::string>{"step"});
  EXPECT_EQ(imported.tensors.size(), expected.size());
  for (const FlaxTensor& tensor : imported.tensors) {
    EXPECT_EQ(tensor.shape, expected.at(tensor.name).shape) << tensor.name;
    EXPECT_EQ(tensor.values, expected.at(tensor.name).values) << tensor.name;
  }
  // Every tensor of the network is there, so that a file of them opens.
  const auto bytes = std::make_shared<const std::string>(
      model_file_bytes(config, {}, imported.views(), format::DType::kF32, "test"));
  ModelFile::parse(bytes, "test").check_tensors();
}

TEST(ImportFlax, EveryKindOfNetwork) {
  config::QnAViTConfig config = small_config();
  expect_comes_back(config);
  config.layer_scale = 0.1;
  config.downsample_skip = config::DownsampleSkip::kAveragePool;
  expect_comes_back(config);
  for (const auto head : {config::HeadKind::kQnAv1, config::HeadKind::kQnAv2}) {
    config.head = head;
    expect_comes_back(config);
  }
  for (const auto scale : {config::AttentionScale::kPerQuery, config::AttentionScale::kOnes,
                           config::AttentionScale::kAverage, config::AttentionScale::kSigned,
                           config::AttentionScale::kNone}) {
    config.attention_scale = scale;
    expect_comes_back(config);
  }
}

TEST(ImportFlax, ResNetStemWithItsStatistics) {
  config::QnAViTConfig config = small_config();
  config.stem = config::StemKind::kResNet;
  expect_comes_back(config);
  FlaxState state = exported(config);
  state.erase("batch_stats.StemBlock_0.BatchNorm_0.var");
  expect_complaint([&] { import_flax(state, config, "test"); },
                   {"missing", "batch_stats.StemBlock_0.BatchNorm_0.var", "stem.norm.running_var"});
}

TEST(ImportFlax, NetworksThatTheAuthorsDoNotHave) {
  config::QnAViTConfig config = small_config();
  const FlaxState state = exported(config);
  config.stem = config::StemKind::kEfficientNet;
  expect_complaint([&] { import_flax(state, config, "test"); },
                   {"stem patch, conv or resnet", "'efficientnet'"});
}

// The msgpack file made by the authors' code.
TEST(ImportFlax, GoldenFile) {
  const FlaxState state =
      format::read_flax(std::string(QNA_GOLDEN_DIR) + "/qna_vit_micro.flax.msgpack");
  expect_complaint([&] { import_flax(state, small_config(), "golden"); },
                   {"golden", "does not fit", "shape", "more"});
  expect_complaint([&] { recognize_flax(state, "golden"); },
                   {"golden", "none of the listed models"});
}

class DamagedFlax : public ::testing::Test {
 protected:
  std::string said() const {
    return complaint([&] { import_flax(state, small_config(), "file.msgpack"); });
  }
  void reshape(const std::string& name, std::vector<int64_t> shape) {
    state.at("params." + name).shape = std::move(shape);
  }
  void expect_words(std::initializer_list<const char*> words) const {
    expect_complaint([&] { import_flax(state, small_config(), "file.msgpack"); }, words);
  }
  FlaxState state = exported(small_config());
};

TEST_F(DamagedFlax, Whole) { EXPECT_EQ(said(), ""); }

TEST_F(DamagedFlax, AllProblemsAreListed) {
  state.erase("params.QnAStage_0.QnA_Block_1.FusedKQnA_0.Wk");
  state.erase("params.ClassificationHead_0.head_logits.bias");
  state["params.Extra_0.kernel"] = state.at("params.StemBlock_0.conv_1x1.kernel");
  state["batch_stats.Extra_0.mean"] = state.at("params.StemBlock_0.conv_1x1.kernel");
  state.at("params.LSAStage_1.MSA_Block_1.LayerNorm_0.scale") = {
      format::DType::kF32, {3}, std::vector<std::byte>(12)};
  expect_words(
      {"file.msgpack", "missing: params.QnAStage_0.QnA_Block_1.FusedKQnA_0.Wk",
       "stages.0.blocks.0.qna.key_weight", "missing: params.ClassificationHead_0.head_logits.bias",
       "left over: params.Extra_0.kernel [4, 4, 3, 8]", "left over: batch_stats.Extra_0.mean",
       "shape: params.LSAStage_1.MSA_Block_1.LayerNorm_0.scale is [3]", "needs [16]"});
}

// As many elements as there should be, in another shape: never taken for the right ones.
TEST_F(DamagedFlax, RightCountWrongShape) {
  const FlaxState whole = state;
  const std::pair<const char*, std::vector<int64_t>> shapes[] = {
      {"StemBlock_0.conv_1x1.kernel", {4, 4, 24}},
      {"StemBlock_0.conv_1x1.kernel", {8, 3, 4, 4}},
      {"StemBlock_0.conv_1x1.kernel", {384}},
      {"ClassificationHead_0.head_logits.kernel", {4, 16}},
      {"ClassificationHead_0.head_logits.kernel", {64}},
      {"ClassificationHead_0.head_logits.kernel", {4, 4, 4}},
      {"ClassificationHead_0.LayerNorm_0.scale", {1, 16}},
      {"QnAStage_0.QnA_Block_1.FusedKQnA_0.query", {8, 2}},
      {"QnAStage_0.QnA_Block_1.FusedKQnA_0.rpe_bias", {4, 9}},
      {"QnAStage_0.QnA_Block_1.FusedKQnA_0.rpe_bias", {36}},
      {"QnAStage_0.QnA_Block_1.FusedKQnA_0.attn_scale_weights", {1, 1, 4, 9}},
      {"QnAStage_0.QnA_Block_2_stride_2.Conv_0.kernel", {8, 16}},
      {"LSAStage_1.MSA_Block_1.MultiHeadSelfAttention_0.to_qkv.kernel", {48, 16}},
      {"LSAStage_1.MSA_Block_1.MultiHeadSelfAttention_0.to_qkv.kernel", {16, 3, 16}},
      {"LSAStage_1.MSA_Block_1.MultiHeadSelfAttention_0.RelativePositionalEmbedding_0.rpe_bias",
       {2, 15}},
  };
  for (const auto& [name, shape] : shapes) {
    state = whole;
    reshape(name, shape);
    const std::string sizes = fmt::format("[{}]", fmt::join(shape, ", "));
    SCOPED_TRACE(::testing::Message() << name << " " << sizes);
    expect_words({"file.msgpack", "shape", name, sizes.c_str()});
  }
  state = whole;
  reshape("QnAStage_0.QnA_Block_1.FusedKQnA_0.attn_scale_weights", {3, 3, 2, 2});
  EXPECT_EQ(said(), "");  // the same in other words
}

TEST_F(DamagedFlax, BytesThatAreNotTheShapes) {
  state.at("params.QnAStage_0.QnA_Block_1.FusedKQnA_0.query").bytes.pop_back();
  expect_words({"file.msgpack", "FusedKQnA_0.query", "63 bytes", "64"});
}

TEST(ImportFlax, OtherDownsampling) {
  config::QnAViTConfig config = small_config();
  const FlaxState state = exported(config);
  config.downsample = config::Downsample::kPatchMerging;
  expect_complaint([&] { import_flax(state, config, "test"); }, {"down-sample by QnA"});
}

// By the shapes alone, with any number of classes. The last of the list, so that all others have
// been tried.
TEST(RecognizeFlax, ListedModels) {
  for (const char* name : {"qna_vit_pico", "qna_vit_tiny_7x7"}) {
    config::QnAViTConfig config = config::find_model(name).config;
    config.classes = 3;
    EXPECT_EQ(recognize_flax(exported(config), "test"), name);
  }
}

}  // namespace
}  // namespace qna::engine
