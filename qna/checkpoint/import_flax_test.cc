// The authors' checkpoints: every array has its place, and what does not fit is listed.
#include "qna/checkpoint/import_flax.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "qna/checkpoint/model_file.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/models/registry.h"
#include "qna/ops/tensors_test.h"

namespace qna::checkpoint {
namespace {

using format::FlaxState;
using ops::testing::complaint;
using ops::testing::expect_complaint;
using torch::Tensor;

// ---- a model as the authors' code would have written it: the import backwards ----

class Exporter {
 public:
  explicit Exporter(const models::QnAViT& model) {
    const bool patch = !model->stem->norm;
    const Tensor& stem = model->stem->conv->weight;
    put(std::string("StemBlock_0.") + (patch ? "conv_1x1" : "conv_7x7") + ".kernel",
        stem.permute({2, 3, 1, 0}));
    if (!patch) {
      put("StemBlock_0.BatchNorm_0.scale", model->stem->norm->weight);
      put("StemBlock_0.BatchNorm_0.bias", model->stem->norm->bias);
      put("StemBlock_0.BatchNorm_0.mean", model->stem->norm->running_mean, "batch_stats.");
      put("StemBlock_0.BatchNorm_0.var", model->stem->norm->running_var, "batch_stats.");
    }
    for (size_t i = 0; i < model->stages.size(); ++i) {
      int attention = 0, qna = 0;
      for (const nn::Block& block : model->stages[i]->blocks) {
        put_block(block->qna ? fmt::format("QnAStage_{}.QnA_Block_{}", i, ++qna)
                             : fmt::format("LSAStage_{}.MSA_Block_{}", i, ++attention),
                  block);
      }
      if (model->stages[i]->downsample) {
        put_block(fmt::format("QnAStage_{}.QnA_Block_{}_stride_2", i, qna + 1),
                  model->stages[i]->downsample);
      }
    }
    put_norm("ClassificationHead_0.LayerNorm_0", model->head->norm);
    if (model->head->qna) put_qna("ClassificationHead_0", model->head->qna);
    put_linear("ClassificationHead_0.head_logits", model->head->fc);
    put("step", torch::tensor(int64_t{7}), "");
  }
  FlaxState state;

 private:
  void put(const std::string& name, const Tensor& value, const std::string& root = "params.") {
    const Tensor tensor = value.detach().contiguous();
    const format::TensorView view = view_of(name, tensor);
    state[root + name] = {view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()}};
  }
  void put_norm(const std::string& name, const torch::nn::LayerNorm& norm) {
    put(name + ".scale", norm->weight);
    put(name + ".bias", norm->bias);
  }
  void put_linear(const std::string& name, const torch::nn::Linear& linear) {
    put(name + ".kernel", linear->weight.t());
    if (linear->bias.defined()) put(name + ".bias", linear->bias);
  }
  void put_qna(const std::string& block, const nn::QnA& qna) {
    const std::string name = block + ".FusedKQnA_0.";
    put(name + "query", qna->query);
    put(name + "Wk", qna->key_weight);
    put(name + "to_v.kernel", qna->value_weight);
    put(name + "to_out.kernel", qna->out_weight);
    put(name + "rpe_bias", qna->relative_bias.flatten(2).flatten(0, 1));
    if (!qna->attention_scale.defined()) return;
    const Tensor& scale = qna->attention_scale;
    if (scale.dim() == 2) {
      put(name + "attn_scale_weights", scale);
    } else if (qna->options().attention_scale == nn::AttentionScale::kOnes) {
      put(name + "attn_scale_pos", scale.flatten(0, 1));
    } else {
      put(name + "attn_scale_weights", scale.flatten(2).flatten(0, 1).unsqueeze(0).unsqueeze(0));
    }
  }
  void put_block(const std::string& name, const nn::Block& block) {
    put_norm(name + ".LayerNorm_0", block->norm1);
    put_norm(name + ".LayerNorm_1", block->norm2);
    put_linear(name + ".MlpBlock_0.Dense_0", block->mlp->fc1);
    put_linear(name + ".MlpBlock_0.Dense_1", block->mlp->fc2);
    if (block->scale1.defined()) {
      put(name + ".LayerScale_0.scale_param", block->scale1);
      put(name + ".LayerScale_1.scale_param", block->scale2);
    }
    if (block->skip) {
      put(name + (block->options().average_pool_skip ? ".AvgPool1x1Conv_0" : "") + ".Conv_0.kernel",
          block->skip->weight.permute({2, 3, 1, 0}));
    }
    if (block->qna) {
      put_qna(name, block->qna);
      return;
    }
    const nn::WindowSelfAttention& a = block->attention;
    const int64_t features = a->options().features, heads = a->options().heads;
    const std::string attention = name + ".MultiHeadSelfAttention_0.";
    put(attention + "to_qkv.kernel", a->qkv->weight.view({3, heads, features / heads, features})
                                         .permute({3, 1, 0, 2})
                                         .reshape({features, 3 * features}));
    put(attention + "to_out.kernel", a->proj->weight.t());
    put(attention + "RelativePositionalEmbedding_0.rpe_bias", a->relative_bias.flatten(0, 1));
  }
};

models::QnAViTConfig small_config() {
  return {.image_size = {32, 32},
          .classes = 4,
          .base_dim = 8,
          .stages = {{.qna_blocks = 1, .qna_heads = 2},
                     {.attention_blocks = 1, .qna_blocks = 1, .qna_heads = 4, .window = {3, 2}}}};
}

models::QnAViT make(const models::QnAViTConfig& config) {
  torch::manual_seed(81);
  models::QnAViT model(config);
  torch::NoGradGuard no_grad;
  for (Tensor& parameter : model->parameters()) parameter.normal_();
  for (Tensor& buffer : model->buffers()) {
    if (buffer.is_floating_point()) buffer.uniform_(0.5, 2);
  }
  return model;
}

void expect_comes_back(const models::QnAViTConfig& config) {
  const models::QnAViT model = make(config);
  const FlaxImport imported = import_flax(Exporter(model).state, config, "test");
  EXPECT_FALSE(imported.model->is_training());
  EXPECT_EQ(imported.ignored, std::vector<std::string>{"step"});
  const auto got = named_tensors(*imported.model);
  const auto expected = named_tensors(*model);
  size_t floating = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    floating += expected[i].second.is_floating_point();
    EXPECT_TRUE(torch::equal(got[i].second, expected[i].second)) << expected[i].first;
  }
  EXPECT_EQ(imported.tensors.size(), floating);
}

TEST(ImportFlax, EveryKindOfNetwork) {
  models::QnAViTConfig config = small_config();
  expect_comes_back(config);
  config.layer_scale = 0.1;
  config.downsample_skip = models::DownsampleSkip::kAveragePool;
  expect_comes_back(config);
  for (const auto head : {models::HeadKind::kQnAv1, models::HeadKind::kQnAv2}) {
    config.head = head;
    expect_comes_back(config);
  }
  for (const auto scale :
       {nn::AttentionScale::kPerQuery, nn::AttentionScale::kOnes, nn::AttentionScale::kAverage,
        nn::AttentionScale::kSigned, nn::AttentionScale::kNone}) {
    config.attention_scale = scale;
    expect_comes_back(config);
  }
}

TEST(ImportFlax, ResNetStemWithItsStatistics) {
  models::QnAViTConfig config = small_config();
  config.stem = models::StemKind::kResNet;
  expect_comes_back(config);
  FlaxState state = Exporter(make(config)).state;
  state.erase("batch_stats.StemBlock_0.BatchNorm_0.var");
  expect_complaint([&] { import_flax(state, config, "test"); },
                   {"missing", "batch_stats.StemBlock_0.BatchNorm_0.var", "stem.norm.running_var"});
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
  FlaxState state = Exporter(make(small_config())).state;
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
    SCOPED_TRACE(testing::Message() << name << " " << ops::sizes_text(shape));
    state = whole;
    reshape(name, shape);
    const std::string sizes = ops::sizes_text(shape);
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
  models::QnAViTConfig config = small_config();
  const FlaxState state = Exporter(make(config)).state;
  config.downsample = models::Downsample::kPatchMerging;
  expect_complaint([&] { import_flax(state, config, "test"); }, {"down-sample by QnA"});
}

// By the shapes alone, with any number of classes. The last of the list, so that all others have
// been tried.
TEST(RecognizeFlax, ListedModels) {
  for (const char* name : {"qna_vit_pico", "qna_vit_tiny_7x7"}) {
    models::QnAViTConfig config = models::find_model(name).config;
    config.classes = 3;
    EXPECT_EQ(recognize_flax(Exporter(models::QnAViT(config)).state, "test"), name);
  }
}

}  // namespace
}  // namespace qna::checkpoint
