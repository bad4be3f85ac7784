// Auto-encoders on disk: what is written is read again, and what is refused.
#include "qna/checkpoint/model_file.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "qna/checkpoint/file_testonly.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::checkpoint {
namespace {

using ops::testing::expect_complaint;
using testing::expect_same_tensors;
using AutoEncoderFile = testing::FileTest;

config::AutoEncoderConfig small_auto_encoder() { return {.widths = {8, 16, 12}, .heads = 4}; }

models::AutoEncoder make(uint64_t seed = 91) {
  torch::manual_seed(seed);
  models::AutoEncoder model(small_auto_encoder());
  testing::randomize(*model);
  return model;
}

ModelInfo auto_encoder_info() {
  return {
      .name = "small", .preprocess = {.resize = 32, .crop = {32, 32}}, .training = {{"epochs", 3}}};
}

TEST_F(AutoEncoderFile, RoundTripIsExact) {
  const models::AutoEncoder model = make();
  save_model(path(), model, auto_encoder_info(), at::kFloat, {{"step", torch::tensor({7})}});
  EXPECT_EQ(engine::ModelFile::open(path()).kind(), config::Kind::kAutoEncoder);
  const Loaded<models::AutoEncoder> loaded = load_model<models::AutoEncoder>(path());
  EXPECT_FALSE(loaded.model->is_training());
  EXPECT_EQ(loaded.model->config(), small_auto_encoder());
  expect_same_tensors(*loaded.model, *model);
  EXPECT_EQ(loaded.info.name, "small");
  EXPECT_EQ(loaded.info.preprocess, auto_encoder_info().preprocess);
  EXPECT_EQ(loaded.info.training, auto_encoder_info().training);
  models::AutoEncoder other = make(92);
  load_weights(other, path());
  expect_same_tensors(*other, *model);
}

TEST_F(AutoEncoderFile, OtherFilesAreRefused) {
  save_model(path(), make(), auto_encoder_info());
  expect_complaint([&] { load_model<models::QnAViT>(path()); }, {path().c_str(), "auto-encoder"});
  const std::string classifier = path("classifier.safetensors");
  save_model(classifier, models::QnAViT(config::QnAViTConfig{.stages = {{.qna_blocks = 1}}}), {});
  expect_complaint([&] { load_model<models::AutoEncoder>(classifier); }, {"classifier"});
  const std::string bad_config =
      changed([](Metadata& metadata, Tensors&) { metadata["config"] = R"({"factor": 1})"; });
  expect_complaint([&] { load_model<models::AutoEncoder>(bad_config); },
                   {bad_config.c_str(), "factor", "1"});
  const std::string huge = changed(
      [](Metadata& metadata, Tensors&) { metadata["config"] = R"({"widths": [65536, 65536]})"; });
  expect_complaint([&] { load_model<models::AutoEncoder>(huge); }, {huge.c_str(), "parameters"});
  const std::string other = changed([](Metadata& metadata, Tensors&) {
    metadata["config"] = R"({"widths": [8, 16, 12], "heads": 2})";
  });
  models::AutoEncoder two_heads = make(94);
  expect_complaint([&] { load_weights(two_heads, other); }, {"configuration", "heads"});
  const std::string without =
      changed([](Metadata&, Tensors& tensors) { tensors.erase("head.weight"); });
  expect_complaint([&] { load_model<models::AutoEncoder>(without); },
                   {without.c_str(), "head.weight"});
  models::AutoEncoder kept = make(93);
  expect_complaint([&] { load_weights(kept, without); }, {"head.weight"});
  expect_same_tensors(*kept, *make(93));
}

}  // namespace
}  // namespace qna::checkpoint
