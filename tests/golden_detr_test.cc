// DETR's transformer, matching, losses and boxes against numbers made with the authors' code.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <nlohmann/json.hpp>

#include "qna/engine/detr.h"
#include "qna/models/detr.h"
#include "qna/predict/detections.h"
#include "qna/tasks/set_loss.h"
#include "tests/engine_parts.h"
#include "tests/support/safetensors.h"

namespace qna {
namespace {

using torch::Tensor;

// DETR's name of a tensor for the file's, whose box head is numbered with the activations.
std::string name_in_detr(const std::string& name) {
  if (name == "query_embed") return "query_embed.weight";
  for (const auto& [file, detr] : {std::pair{"bbox_embed.0", "bbox_embed.layers.0"},
                                   {"bbox_embed.2", "bbox_embed.layers.1"},
                                   {"bbox_embed.4", "bbox_embed.layers.2"}}) {
    if (name.starts_with(file)) return detr + name.substr(std::string(file).size());
  }
  return name;
}

class GoldenDetr : public ::testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);  // everything is tiny
    golden = testing::read_safetensors(std::string(QNA_GOLDEN_DIR) + "/detr_micro.safetensors");
    const auto c = nlohmann::json::parse(golden.metadata.at("config"));
    ASSERT_EQ(c["eos_coef"], tasks::SetLossOptions{}.no_object);
    ASSERT_EQ(c["cost"]["cls"], tasks::SetLossOptions{}.class_cost);
    ASSERT_EQ(c["cost"]["bbox"], tasks::SetLossOptions{}.box_cost);
    ASSERT_EQ(c["cost"]["giou"], tasks::SetLossOptions{}.giou_cost);
    model = models::Detr(config::DetrConfig{.backbone = config::ResNetConfig{.depth = 18},
                                            .hidden = c["hidden"],
                                            .heads = c["heads"],
                                            .encoder_blocks = c["encoder"],
                                            .decoder_blocks = c["decoder"],
                                            .feedforward = c["feedforward"],
                                            .queries = c["queries"],
                                            .classes = c["classes"],
                                            .pre_norm = c["pre_norm"]});
    model->eval();  // no dropout
    const torch::NoGradGuard no_grad;
    auto parameters = model->named_parameters();
    size_t wanted = 0, loaded = 0;
    for (const auto& item : parameters) {
      wanted += !item.key().starts_with("backbone.") && !item.key().starts_with("input_proj.");
    }
    for (const auto& [name, value] : golden.tensors) {
      if (Tensor* parameter = parameters.find(name_in_detr(name))) {
        ASSERT_EQ(parameter->sizes(), value.sizes()) << name;
        parameter->copy_(value);
        ++loaded;
      }
    }
    EXPECT_EQ(loaded, wanted);  // every parameter behind the projection, by DETR's own names

    source = golden.at("src").permute({0, 2, 3, 1}).contiguous().requires_grad_();
    features.mask = golden.at("mask") == 0;  // theirs says where the padding is
    features.positions = model->positions().forward(source, features.mask);
    for (int i = 0; i < 2; ++i) {
      const std::string target = "target." + std::to_string(i);
      targets.push_back({golden.at(target + ".labels"), golden.at(target + ".boxes")});
    }
  }

  void run() {
    features.map = model->transformer->forward_encoder(source, features.positions, features.mask);
    output = model->forward_head(features);
  }

  void expect_near(const Tensor& got, const Tensor& expected, double tolerance,
                   const std::string& what) {
    ASSERT_TRUE(got.defined()) << what;
    ASSERT_EQ(got.sizes(), expected.sizes()) << what;
    // Gradients that should be 0 are rounding noise on both sides.
    const double scale = std::max(expected.abs().max().item<double>(), 1e-3);
    EXPECT_LE((got - expected).abs().max().item<double>(), tolerance * scale)
        << what << ", whose largest element is " << scale;
  }

  testing::SafeTensors golden;
  models::Detr model{nullptr};
  Tensor source;
  models::DetrFeatures features;
  models::DetrOutput output;
  std::vector<tasks::BoxTargets> targets;
};

TEST_F(GoldenDetr, Positions) {
  expect_near(features.positions.permute({0, 3, 1, 2}), golden.at("pos"), 1e-5, "positions");
}

TEST_F(GoldenDetr, EncoderAndDecoder) {
  run();
  expect_near(features.map.permute({0, 3, 1, 2}), golden.at("memory"), 1e-5, "memory");
  const Tensor states = model->transformer->forward_decoder(
      features.map, features.positions, features.mask, model->query_embed->weight);
  expect_near(states, golden.at("hs"), 1e-5, "hs");
  expect_near(output.logits, golden.at("logits"), 1e-5, "logits");
  expect_near(output.boxes, golden.at("boxes"), 1e-5, "boxes");
}

TEST_F(GoldenDetr, WithoutGradients) {
  const torch::NoGradGuard no_grad;
  run();
  expect_near(output.logits, golden.at("logits"), 1e-5, "logits");
  expect_near(output.boxes, golden.at("boxes"), 1e-5, "boxes");
}

// Position codes, encoder, decoder, queries and heads as `qna detect` runs them.
TEST_F(GoldenDetr, Engine) {
  const engine::ModelFile file = testing::file_of(*model);
  const engine::Detr detr(engine::Tensors(file, kernels::WeightType::kFloat32), model->config());
  testing::PartContext part;
  const Tensor mask = features.mask.contiguous();
  Tensor map = source.detach().clone();
  Tensor logits = torch::empty_like(golden.at("logits"));
  Tensor boxes = torch::empty_like(golden.at("boxes"));
  class Encoded : public engine::Visitor {
   public:
    bool wants_encoded() override { return true; }
    void encoded(const engine::MapView& map) override {
      memory.assign(map.data, map.data + map.batch * map.height * map.width * map.features);
    }
    std::vector<float> memory;
  } visitor;
  detr.run_transformer(testing::map_of(map), static_cast<const uint8_t*>(mask.const_data_ptr()),
                       {.logits = logits.data_ptr<float>(),
                        .boxes = boxes.data_ptr<float>(),
                        .every_block = true,
                        .first = 0,
                        .total = map.size(0)},
                       part.worker, &visitor);
  const Tensor memory = golden.at("memory").permute({0, 2, 3, 1});
  expect_near(testing::inside(torch::tensor(visitor.memory).view(memory.sizes()), mask),
              testing::inside(memory, mask), 1e-5, "memory");
  expect_near(logits, golden.at("logits"), 1e-5, "logits");
  expect_near(boxes, golden.at("boxes"), 1e-5, "boxes");
}

TEST_F(GoldenDetr, LossesAndMatches) {
  run();
  const tasks::SetLoss loss = tasks::set_loss(output.logits, output.boxes, targets);
  for (int i = 0; i < 2; ++i) {
    const std::string match = "match." + std::to_string(i);
    EXPECT_TRUE(loss.matches[i].predictions.equal(golden.at(match + ".pred")));
    EXPECT_TRUE(loss.matches[i].targets.equal(golden.at(match + ".target")));
  }
  ASSERT_EQ(loss.terms.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const char* block = std::array{"_0", "_1", ""}[i];
    const auto expect_term = [&](const Tensor& got, const std::string& name) {
      expect_near(got.view(1), golden.at("loss." + name + block), 1e-5, name + block);
    };
    expect_term(loss.terms[i].classes, "loss_ce");
    expect_term(loss.terms[i].boxes, "loss_bbox");
    expect_term(loss.terms[i].giou, "loss_giou");
    expect_term(torch::tensor(loss.terms[i].cardinality_error), "cardinality_error");
  }
  EXPECT_NEAR(loss.class_error, golden.at("loss.class_error").item<double>(), 1e-4);
  expect_near(loss.total.view(1), golden.at("total_loss"), 1e-5, "total loss");
}

TEST_F(GoldenDetr, GradientOfEveryParameter) {
  run();
  tasks::set_loss(output.logits, output.boxes, targets).total.backward();
  expect_near(source.grad().permute({0, 3, 1, 2}), golden.at("grad.src"), 1e-4, "grad.src");
  size_t compared = 0;
  for (const auto& item : model->transformer->named_parameters()) {
    const std::string name = "transformer." + item.key();
    expect_near(item.value().grad(), golden.at("grad." + name), 1e-4, name);
    ++compared;
  }
  size_t given = 0;
  for (const auto& [name, tensor] : golden.tensors) given += name.starts_with("grad.transformer.");
  EXPECT_EQ(compared, given);
}

TEST_F(GoldenDetr, Detections) {
  run();
  std::vector<std::array<int64_t, 2>> sizes;
  for (int i = 0; i < 2; ++i) {
    const Tensor size = golden.at("sizes")[i];
    sizes.push_back({size[0].item<int64_t>(), size[1].item<int64_t>()});
  }
  const Tensor logits = output.logits[2].detach().contiguous();
  const Tensor boxes = output.boxes[2].detach().contiguous();
  const std::vector<predict::Detections> found =
      predict::detections({.batch = 2,
                           .queries = logits.size(1),
                           .classes = logits.size(2) - 1,
                           .logits = logits.const_data_ptr<float>(),
                           .boxes = boxes.const_data_ptr<float>()},
                          sizes);
  ASSERT_EQ(found.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const std::string image = "post." + std::to_string(i);
    const Tensor labels = golden.at(image + ".labels");
    ASSERT_EQ(static_cast<int64_t>(found[i].size()), labels.numel());
    for (int64_t n = 0; n < labels.numel(); ++n) {
      const predict::Detection& one = found[i][n];
      EXPECT_EQ(one.label, labels[n].item<int64_t>());
      expect_near(torch::tensor({one.score}), golden.at(image + ".scores").slice(0, n, n + 1), 1e-5,
                  image + ".scores");
      expect_near(torch::tensor(at::ArrayRef<double>(one.box)), golden.at(image + ".boxes")[n],
                  1e-5, image + ".boxes");
    }
  }
}

}  // namespace
}  // namespace qna
