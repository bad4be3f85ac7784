// Models on disk: what is written is read again, what fits after a change, and what is refused.
#include "qna/checkpoint/model_file.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "qna/base/text.h"
#include "qna/checkpoint/file_testonly.h"
#include "qna/config/efficientnet_stem.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::checkpoint {
namespace {

using nlohmann::json;
using ops::testing::complaint;
using ops::testing::expect_complaint;
using ops::testing::near;
using testing::bytes_of;
using testing::expect_same_tensors;
using torch::Tensor;

const auto* const kOneThread = ::testing::AddGlobalTestEnvironment(new ops::testing::OneThread);

config::QnAViTConfig small_config() {
  return {.image_size = {32, 48},
          .classes = 4,
          .base_dim = 8,
          .stages = {{.qna_blocks = 1, .qna_heads = 2},
                     {.attention_blocks = 1, .qna_heads = 4, .window = {3, 2}}},
          .layer_scale = 0.1};
}

models::QnAViT make(const config::QnAViTConfig& config, uint64_t seed = 71) {
  torch::manual_seed(seed);
  models::QnAViT model(config);
  testing::randomize(*model);
  model->eval();
  return model;
}

std::map<std::string, Tensor> tensors_by_name(const torch::nn::Module& model) {
  const NamedTensors tensors = named_tensors(model);
  return {tensors.begin(), tensors.end()};
}

ModelInfo full_info() {
  return {.name = "small",
          .preprocess = {.resize = 40,
                         .crop = {32, 48},
                         .filter = image::Filter::kBilinear,
                         .mean = {0.1f, 0.2f, 0.3f},
                         .std = {0.4f, 0.5f, 0.6f}},
          .labels = {"cat", "dog", "\"quoted\"", "été"},
          .training = {{"epochs", 3}, {"recipe", {{"lr", 1e-3}}}}};
}

using ModelFile = testing::FileTest;

TEST_F(ModelFile, RoundTripIsExact) {
  for (const auto stem : {config::StemKind::kPatch, config::StemKind::kConv,
                          config::StemKind::kResNet, config::StemKind::kEfficientNet}) {
    for (const auto head :
         {config::HeadKind::kGap, config::HeadKind::kQnAv1, config::HeadKind::kQnAv2}) {
      config::QnAViTConfig config = small_config();
      config.stem = stem;
      config.head = head;
      const models::QnAViT model = make(config);
      save_model(path(), model, full_info());
      Loaded<models::QnAViT> loaded = load_model<models::QnAViT>(path());
      EXPECT_FALSE(loaded.model->is_training());
      EXPECT_EQ(loaded.model->config(), config);
      expect_same_tensors(*loaded.model, *model);
      const Tensor x = torch::randn({1, 32, 48, 3});
      EXPECT_TRUE(torch::equal(loaded.model->forward(x), models::QnAViT(model)->forward(x)));
    }
  }
}

// A model to serve is what its file would be.
TEST_F(ModelFile, ServingModel) {
  models::QnAViT model = make(small_config());
  const engine::Model serving = serving_model(model, full_info());
  EXPECT_EQ(serving.classifier(), small_config());
  EXPECT_EQ(serving.info().labels, full_info().labels);
  save_model(path(), model, full_info());
  const engine::Model from_file = engine::Model::open(path());
  const Tensor x = torch::randn({2, 32, 48, 3});
  engine::Context context(1);
  const auto logits = [&](const engine::Model& served) {
    const Tensor y = torch::empty({2, 4});
    served.classify({.batch = 2, .height = 32, .width = 48, .pixels = x.const_data_ptr<float>()},
                    y.data_ptr<float>(), context);
    return y;
  };
  EXPECT_TRUE(torch::equal(logits(serving), logits(from_file)));
  EXPECT_TRUE(near(logits(serving), model->forward(x), 1e-4));
}

TEST_F(ModelFile, EveryDownsampling) {
  for (const auto way : {config::Downsample::kQnA, config::Downsample::kPatchMerging,
                         config::Downsample::kConvPool}) {
    config::QnAViTConfig config = small_config();
    config.downsample = way;
    const models::QnAViT model = make(config);
    save_model(path(), model, {});
    expect_same_tensors(*load_model<models::QnAViT>(path()).model, *model);
  }
}

TEST_F(ModelFile, Metadata) {
  const ModelInfo info = full_info();
  save_model(path(), make(small_config()), info);
  const Loaded<models::QnAViT> loaded = load_model<models::QnAViT>(path());
  EXPECT_EQ(loaded.info.name, info.name);
  EXPECT_EQ(loaded.info.preprocess, info.preprocess);
  EXPECT_EQ(loaded.info.labels, info.labels);
  EXPECT_EQ(loaded.info.training, info.training);
  // And with nothing said.
  save_model(path(), make(small_config()), {});
  const Loaded<models::QnAViT> plain = load_model<models::QnAViT>(path());
  EXPECT_EQ(plain.info.name, "");
  EXPECT_EQ(plain.info.preprocess, config::Preprocess());
  EXPECT_TRUE(plain.info.labels.empty());
  EXPECT_TRUE(plain.info.training.is_null());
}

// float16 keeps 11 bits and rounds to nearest: 2^-11 of the value. bfloat16 keeps 8.
TEST_F(ModelFile, HalfPrecision) {
  for (const auto& [type, part] : {std::pair{at::kHalf, 1.0 / 2048}, {at::kBFloat16, 1.0 / 256}}) {
    config::QnAViTConfig config = small_config();
    config.stem = config::StemKind::kResNet;  // with a counter, which is no floating number
    const models::QnAViT model = make(config);
    save_model(path(), model, {}, type);
    const format::SafetensorsFile file(path());
    EXPECT_EQ(file.at("head.fc.weight").dtype,
              type == at::kHalf ? format::DType::kF16 : format::DType::kBF16);
    const auto got = named_tensors(*load_model<models::QnAViT>(path()).model);
    const auto expected = named_tensors(*model);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].second.scalar_type(), expected[i].second.scalar_type());
      const Tensor a = got[i].second.to(torch::kDouble), b = expected[i].second.to(torch::kDouble);
      // Below 2^-14 float16 has steps of 2^-24.
      EXPECT_TRUE(((a - b).abs() <= b.abs() * part + 6e-8).all().item<bool>()) << got[i].first;
    }
  }
}

TEST_F(ModelFile, ModelsOfOtherTypesAreWritten) {
  models::QnAViT model = make(small_config());
  save_model(path(), model, {});
  const std::string expected = bytes_of(path());
  model->to(torch::kDouble);
  save_model(path(), model, {});
  EXPECT_EQ(bytes_of(path()), expected);
}

TEST_F(ModelFile, AnotherNumberOfClasses) {
  const models::QnAViT model = make(small_config());
  save_model(path(), model, full_info());
  config::QnAViTConfig config = small_config();
  config.classes = 7;
  models::QnAViT other = make(config, 72);
  const models::QnAViT initial = make(config, 72);
  EXPECT_EQ(load_weights(other, path()),
            (LoadReport{"head.fc.weight: [4, 16] -> [7, 16], newly initialised",
                        "head.fc.bias: [4] -> [7], newly initialised"}));
  const auto parameters = other->named_parameters();
  const auto initial_parameters = initial->named_parameters();
  for (const auto& item : model->named_parameters()) {
    const std::string& name = item.key();
    const Tensor& expected = name.starts_with("head.fc.") ? initial_parameters[name] : item.value();
    EXPECT_TRUE(torch::equal(parameters[name], expected)) << name;
  }
}

TEST_F(ModelFile, WithAndWithoutHead) {
  save_model(path(), make(small_config()), full_info());
  config::QnAViTConfig config = small_config();
  config.classes = 0;
  models::QnAViT without = make(config, 72);
  EXPECT_TRUE(without->head.is_empty());
  EXPECT_TRUE(load_weights(without, path()).empty());

  save_model(path(), without, {});
  config.classes = 3;
  models::QnAViT with = make(config, 73);
  EXPECT_EQ(load_weights(with, path()),
            (LoadReport{"head.norm.weight: not in the file, newly initialised",
                        "head.norm.bias: not in the file, newly initialised",
                        "head.fc.weight: not in the file, newly initialised",
                        "head.fc.bias: not in the file, newly initialised"}));
}

TEST_F(ModelFile, AnotherImageSize) {
  // Windows of a fixed size do not care.
  save_model(path(), make(small_config()), {});
  config::QnAViTConfig large = small_config();
  large.image_size = {64, 64};
  models::QnAViT same = make(large, 72);
  EXPECT_TRUE(load_weights(same, path()).empty());

  // What is as large as the map is resized: 4 x 6 positions to 8 x 8.
  config::QnAViTConfig config = small_config();
  config.head = config::HeadKind::kQnAv2;
  config.stages[1].window = {0, 0};
  const models::QnAViT model = make(config);
  save_model(path(), model, {});
  config.image_size = {64, 64};
  models::QnAViT resized = make(config, 72);
  EXPECT_EQ(load_weights(resized, path()),
            (LoadReport{"stages.1.blocks.0.attention.relative_bias: [7, 11, 2] -> [15, 15, 2], "
                        "resized bicubically",
                        "head.qna.relative_bias: [4, 6, 2, 4] -> [8, 8, 2, 4], resized bicubically",
                        "head.qna.attention_scale: [4, 6, 2, 4] -> [8, 8, 2, 4], resized "
                        "bicubically"}));
  const auto from = model->named_parameters();
  const auto to = resized->named_parameters();
  EXPECT_TRUE(torch::equal(
      to["stages.1.blocks.0.attention.relative_bias"],
      nn::resize_relative_bias(from["stages.1.blocks.0.attention.relative_bias"], {8, 8})));
  EXPECT_TRUE(torch::equal(to["head.qna.attention_scale"],
                           models::resize_window_table(from["head.qna.attention_scale"], {8, 8})));
  // The network at this size is the one that resizes as it goes.
  const Tensor x = torch::randn({1, 64, 64, 3});
  resized->eval();
  EXPECT_TRUE(near(resized->forward(x), models::QnAViT(model)->forward(x), 1e-4));
}

TEST_F(ModelFile, AnotherWindow) {
  const models::QnAViT model = make(small_config());
  save_model(path(), model, {});
  config::QnAViTConfig config = small_config();
  config.stages[1].window = {5, 4};
  models::QnAViT other = make(config, 72);
  EXPECT_EQ(load_weights(other, path()),
            (LoadReport{"stages.1.blocks.0.attention.relative_bias: [5, 3, 2] -> [9, 7, 2], "
                        "resized bicubically"}));
}

// A file of a network without blocks gives another its stem.
TEST_F(ModelFile, StemAlone) {
  config::QnAViTConfig stem = small_config();
  stem.stem = config::StemKind::kEfficientNet;
  stem.base_dim = config::kEfficientNetLast;
  stem.classes = 0;
  stem.stages = {config::StageConfig{}};
  const models::QnAViT given = make(stem);
  save_model(path(), given, {});

  config::QnAViTConfig config = small_config();
  config.stem = config::StemKind::kEfficientNet;
  models::QnAViT model = make(config, 72);
  EXPECT_EQ(load_weights(model, path()),
            (LoadReport{"stages: not in the file, which is a stem alone; newly initialised",
                        "stem.out.weight: [112, 112] -> [8, 112], newly initialised",
                        "stem.out.bias: [112] -> [8], newly initialised",
                        "head.norm.weight: not in the file, newly initialised",
                        "head.norm.bias: not in the file, newly initialised",
                        "head.fc.weight: not in the file, newly initialised",
                        "head.fc.bias: not in the file, newly initialised"}));
  const models::QnAViT before = make(config, 72);
  const std::map<std::string, Tensor> from = tensors_by_name(*given);
  const std::map<std::string, Tensor> kept = tensors_by_name(*before);
  for (const auto& [name, tensor] : named_tensors(*model)) {
    const bool is_given = name.starts_with("stem.") && !name.starts_with("stem.out.");
    EXPECT_TRUE(torch::equal(tensor, (is_given ? from : kept).at(name))) << name;
  }

  // Of the same width, all of the stem.
  config.base_dim = config::kEfficientNetLast;
  models::QnAViT wide = make(config, 73);
  EXPECT_EQ(load_weights(wide, path()).size(), 5);
  EXPECT_TRUE(torch::equal(wide->efficientnet_stem->out->weight, from.at("stem.out.weight")));
}

TEST_F(ModelFile, MissingAndExtraTensors) {
  save_model(path(), make(small_config()), {});
  const std::string missing =
      changed([](Metadata&, Tensors& tensors) { tensors.erase("stages.0.blocks.0.qna.query"); });
  expect_complaint([&] { load_model<models::QnAViT>(missing); },
                   {missing.c_str(), "no tensor", "'stages.0.blocks.0.qna.query'"});
  const std::string extra =
      changed([](Metadata&, Tensors& tensors) { tensors["more"] = torch::ones({2}); });
  expect_complaint([&] { load_model<models::QnAViT>(extra); },
                   {extra.c_str(), "no place", "'more'"});
}

TEST_F(ModelFile, WrongShapes) {
  save_model(path(), make(small_config()), {});
  const std::pair<const char*, Tensor> shapes[] = {
      {"stem.conv.weight", torch::ones({8, 3, 4, 5})},
      {"stages.0.blocks.0.qna.query", torch::ones({3, 8})},
      {"stages.0.blocks.0.qna.relative_bias", torch::ones({5, 5, 2, 2})},
      {"stages.0.blocks.0.norm1.weight", torch::ones({8, 1})},
      {"stages.1.blocks.0.attention.relative_bias", torch::ones({5, 3, 3})},
      {"stages.1.blocks.0.attention.relative_bias", torch::ones({4, 3, 2})},
      {"stages.1.blocks.0.attention.relative_bias", torch::ones({5, 3})},
      {"head.norm.weight", torch::ones({17})},
      {"head.fc.weight", torch::ones({4, 15})},
      {"head.fc.weight", torch::ones({4})},
  };
  for (const auto& [name, tensor] : shapes) {
    const std::string wrong =
        changed([&, n = name, t = tensor](Metadata&, Tensors& tensors) { tensors[n] = t; });
    const std::string sizes = "got " + in_brackets(tensor.sizes());
    expect_complaint([&] { load_model<models::QnAViT>(wrong); },
                     {wrong.c_str(), name, "must be", sizes.c_str()});
  }
}

// A model that exists stays as it is when a file does not fit.
TEST_F(ModelFile, FailedLoadChangesNothing) {
  save_model(path(), make(small_config()), {});
  const std::string extra =
      changed([](Metadata&, Tensors& tensors) { tensors["more"] = torch::ones({2}); });
  models::QnAViT model = make(small_config(), 73);
  EXPECT_NE(complaint([&] { load_weights(model, extra); }), "");
  expect_same_tensors(*model, *make(small_config(), 73));
}

TEST_F(ModelFile, WrongMetadata) {
  save_model(path(), make(small_config()), full_info());
  const auto with = [&](const char* key, const char* value) {
    return changed([&](Metadata& metadata, Tensors&) { metadata[key] = value; });
  };
  for (const char* key : {"config", "preprocess", "labels", "training"}) {
    const std::string broken = with(key, "{\"a\": ");
    expect_complaint([&] { load_model<models::QnAViT>(broken); },
                     {broken.c_str(), key, "not JSON"});
  }
  expect_complaint([&] { load_model<models::QnAViT>(with("config", "{\"classes\": 4}")); },
                   {"changed", "stages"});
  expect_complaint([&] { load_model<models::QnAViT>(with("config", "[]")); }, {"changed", "table"});
  expect_complaint([&] { load_model<models::QnAViT>(with("preprocess", "{\"size\": 4}")); },
                   {"changed", "size"});
  expect_complaint(
      [&] { load_model<models::QnAViT>(with("preprocess", "{\"mean\": [0], \"std\": [1]}")); },
      {"changed", "3 channels", "makes 1"});
  expect_complaint([&] { load_model<models::QnAViT>(with("labels", "{\"a\": \"b\"}")); },
                   {"changed", "labels"});
  expect_complaint([&] { load_model<models::QnAViT>(with("labels", "[\"a\", 3, \"b\", \"c\"]")); },
                   {"changed", "labels", "strings"});
  expect_complaint([&] { load_model<models::QnAViT>(with("labels", "[\"a\", \"b\"]")); },
                   {"changed", "2 labels", "4 classes"});
  const std::string without =
      changed([](Metadata& metadata, Tensors&) { metadata.erase("config"); });
  expect_complaint([&] { load_model<models::QnAViT>(without); },
                   {without.c_str(), "no model configuration"});
}

TEST_F(ModelFile, UnknownKind) {
  save_model(path(), make(small_config()), {});
  const std::string other =
      changed([](Metadata& metadata, Tensors&) { metadata["kind"] = "diffuser"; });
  models::QnAViT model = make(small_config());
  expect_complaint([&] { load_model<models::QnAViT>(other); },
                   {other.c_str(), "kind", "'diffuser'"});
  expect_complaint([&] { load_weights(model, other); }, {other.c_str(), "kind", "'diffuser'"});
}

TEST_F(ModelFile, BrokenFiles) {
  expect_complaint([&] { load_model<models::QnAViT>(path("none")); }, {"none"});
  std::ofstream(path(), std::ios::binary) << "not a model";
  EXPECT_NE(complaint([&] { load_model<models::QnAViT>(path()); }), "");
  save_model(path(), make(small_config()), {});
  std::filesystem::resize_file(path(), std::filesystem::file_size(path()) - 1);
  EXPECT_NE(complaint([&] { load_model<models::QnAViT>(path()); }), "");
}

TEST_F(ModelFile, FailedSaveLeavesTheFile) {
  const models::QnAViT model = make(small_config());
  save_model(path(), model, full_info());
  const std::string before = bytes_of(path());
  ModelInfo wrong = full_info();
  wrong.labels.pop_back();
  expect_complaint([&] { save_model(path(), model, wrong); }, {"3 labels", "4 classes"});
  expect_complaint([&] { save_model(path(), model, full_info(), at::kDouble); }, {"dtype"});
  // What load_model would refuse is not written.
  wrong = full_info();
  wrong.preprocess.mean = wrong.preprocess.std = {0.5f};
  expect_complaint([&] { save_model(path(), model, wrong); }, {"3 channels", "makes 1"});
  EXPECT_EQ(bytes_of(path()), before);
  // Nothing half-written beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder()), {}), 1);
  EXPECT_NE(complaint([&] { save_model(path("no/such/folder.safetensors"), model, {}); }), "");
}

}  // namespace
}  // namespace qna::checkpoint
