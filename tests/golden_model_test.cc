// Whole models against numbers made by the authors' code: their checkpoint is imported, and logits
// and the gradient of every parameter must agree.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "qna/base/error.h"
#include "qna/checkpoint/model_file.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/engine/import_flax.h"
#include "qna/kernels/implementation.h"
#include "tests/engine_and_torch.h"

namespace qna {
namespace {

using nlohmann::json;
using torch::Tensor;

// The authors' configuration in our words.
config::QnAViTConfig config_of(const json& c) {
  EXPECT_EQ(c["stem_type"], "patch");
  EXPECT_EQ(c["classification_head_type"], "gap");
  EXPECT_EQ(c["qna_attention_scale"], "normal");
  EXPECT_TRUE(c["layer_scale"].is_null());
  config::QnAViTConfig config{.image_size = {c["image"], c["image"]},
                              .classes = c["num_classes"],
                              .base_dim = c["base_dim"],
                              .drop_path = c["drop_path"]};
  for (size_t i = 0; i < c["n_stages"]; ++i) {
    const int64_t kernel = c["qna_receptive_field"][i];
    const int64_t window = c["lsa_window"][i];
    EXPECT_EQ(c["qna_normalize_q"][i], true);
    config.stages.push_back({.attention_blocks = c["lsa_layers"][i],
                             .qna_blocks = c["qna_layers"][i],
                             .attention_heads = c["lsa_heads"][i],
                             .qna_heads = c["qna_heads"][i],
                             .kernel_size = {kernel, kernel},
                             .queries = c["qna_num_queries"],
                             .window = {window, window}});
  }
  return config;
}

// Largest difference, relative to the largest value (at least 1e-3: gradients that should be 0 are
// rounding noise on both sides).
double difference(const Tensor& got, const Tensor& expected) {
  return ((got - expected).abs().max() / expected.abs().max().clamp_min(1e-3)).item<double>();
}

class GoldenModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string stem = std::string(QNA_GOLDEN_DIR) + "/" + GetParam();
    io_ = std::make_unique<format::SafetensorsFile>(stem + ".io.safetensors");
    config_ = config_of(json::parse(io_->metadata().at("config")));
    const format::FlaxState state = format::read_flax(stem + ".flax.msgpack");
    imported_ = engine::import_flax(state, config_, GetParam());
    bytes_ = std::make_shared<const std::string>(
        engine::model_file_bytes(config_, {}, imported_.views(), format::DType::kF32, "golden"));
    model_ = checkpoint::load_model<models::QnAViT>(file()).model;
  }
  void TearDown() override { kernels::force_implementation(""); }
  engine::ModelFile file() const { return engine::ModelFile::parse(bytes_, GetParam()); }
  Tensor golden(const std::string& name) const {
    return checkpoint::tensor_from(io_->at(name), "golden");
  }

  std::unique_ptr<format::SafetensorsFile> io_;
  config::QnAViTConfig config_;
  engine::FlaxImport imported_;
  std::shared_ptr<const std::string> bytes_;  // of the file that `qna import` would write
  models::QnAViT model_{nullptr};
};

TEST_P(GoldenModel, EveryTensorIsMapped) {
  EXPECT_EQ(imported_.tensors.size(), model_->named_parameters().size());
}

TEST_P(GoldenModel, LogitsByDifferentiableOperators) {
  const Tensor logits = model_->forward(golden("x"));
  EXPECT_TRUE(logits.requires_grad());
  EXPECT_LT(difference(logits, golden("y")), 1e-4);
}

TEST_P(GoldenModel, LogitsByEveryKernel) {
  const torch::NoGradGuard no_grad;
  for (const kernels::Implementation& implementation : kernels::implementations()) {
    if (!implementation.supported) continue;
    kernels::force_implementation(implementation.name);
    EXPECT_LT(difference(model_->forward(golden("x")), golden("y")), 1e-4) << implementation.name;
    EXPECT_EQ(kernels::last_implementation(), implementation.name);
  }
}

TEST_P(GoldenModel, LogitsByTheEngine) {
  const Tensor x = golden("x").contiguous();
  for (const kernels::Implementation& implementation : kernels::implementations()) {
    if (!implementation.supported) continue;
    kernels::force_implementation(implementation.name);
    const engine::Model served(file());
    engine::Context context(2);
    Tensor logits = torch::empty({x.size(0), served.classes()});
    served.classify(testing::images_of(x), logits.data_ptr<float>(), context);
    EXPECT_LT(difference(logits, golden("y")), 1e-4) << implementation.name;
    EXPECT_EQ(kernels::last_implementation(), implementation.name);
  }
}

TEST_P(GoldenModel, GradientOfEveryParameter) {
  model_->forward(golden("x")).mul(golden("dy")).sum().backward();
  format::FlaxState gradients;
  for (const format::TensorView& view : io_->tensors()) {
    if (!view.name.starts_with("grad.")) continue;
    gradients["params." + view.name.substr(5)] = {
        view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()}};
  }
  const auto expected = engine::map_flax(gradients, config_, "golden");
  const auto parameters = model_->named_parameters();
  EXPECT_EQ(expected.size(), parameters.size());
  for (const engine::FlaxTensor& tensor : expected) {
    const Tensor value = torch::tensor(tensor.values).view(tensor.shape);
    EXPECT_LT(difference(parameters[tensor.name].grad(), value), 1e-4) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Authors, GoldenModel,
                         ::testing::Values("qna_vit_micro", "qna_vit_micro_7x7"));

}  // namespace
}  // namespace qna
