// Whole models against numbers made by the authors' code: their checkpoint is imported, and logits
// and the gradient of every parameter must agree.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "qna/base/error.h"
#include "qna/checkpoint/import_flax.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/kernels/implementation.h"

namespace qna {
namespace {

using nlohmann::json;
using torch::Tensor;

// The authors' configuration in our words.
models::QnAViTConfig config_of(const json& c) {
  EXPECT_EQ(c["stem_type"], "patch");
  EXPECT_EQ(c["classification_head_type"], "gap");
  EXPECT_EQ(c["qna_attention_scale"], "normal");
  EXPECT_TRUE(c["layer_scale"].is_null());
  models::QnAViTConfig config{.image_size = {c["image"], c["image"]},
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
    const json config = json::parse(io_->metadata().at("config"));
    state_ = format::read_flax(stem + ".flax.msgpack");
    imported_ = checkpoint::import_flax(state_, config_of(config), GetParam());
  }
  void TearDown() override { kernels::force_implementation(""); }
  Tensor golden(const std::string& name) const {
    return checkpoint::tensor_from(io_->at(name), "golden");
  }

  std::unique_ptr<format::SafetensorsFile> io_;
  format::FlaxState state_;
  checkpoint::FlaxImport imported_;
};

TEST_P(GoldenModel, EveryTensorIsMapped) {
  EXPECT_EQ(imported_.tensors.size(), imported_.model->named_parameters().size());
}

TEST_P(GoldenModel, LogitsByDifferentiableOperators) {
  const Tensor logits = imported_.model->forward(golden("x"));
  EXPECT_TRUE(logits.requires_grad());
  EXPECT_LT(difference(logits, golden("y")), 1e-4);
}

TEST_P(GoldenModel, LogitsByEveryKernel) {
  const torch::NoGradGuard no_grad;
  for (const kernels::Implementation& implementation : kernels::implementations()) {
    if (!implementation.supported) continue;
    kernels::force_implementation(implementation.name);
    EXPECT_LT(difference(imported_.model->forward(golden("x")), golden("y")), 1e-4)
        << implementation.name;
    EXPECT_EQ(kernels::last_implementation(), implementation.name);
  }
}

TEST_P(GoldenModel, GradientOfEveryParameter) {
  imported_.model->forward(golden("x")).mul(golden("dy")).sum().backward();
  format::FlaxState gradients;
  for (const format::TensorView& view : io_->tensors()) {
    if (!view.name.starts_with("grad.")) continue;
    gradients["params." + view.name.substr(5)] = {
        view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()}};
  }
  const auto expected = checkpoint::map_flax(gradients, imported_.model, "golden");
  const auto parameters = imported_.model->named_parameters();
  EXPECT_EQ(expected.size(), parameters.size());
  for (const auto& [tensor, value] : expected) {
    EXPECT_LT(difference(parameters[tensor.name].grad(), value), 1e-4) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Authors, GoldenModel,
                         ::testing::Values("qna_vit_micro", "qna_vit_micro_7x7"));

}  // namespace
}  // namespace qna
