// Detectors on disk: what is written is read again, what else gives weights, and what is refused.
#include "qna/checkpoint/model_file.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "qna/checkpoint/file_testonly.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::checkpoint {
namespace {

using ops::testing::expect_complaint;
using testing::bytes_of;
using testing::expect_same_tensors;
using torch::Tensor;

config::QnAViTConfig small_backbone() {
  return {.image_size = {32, 48},
          .classes = 0,
          .base_dim = 8,
          .stages = {{.qna_blocks = 1, .qna_heads = 2},
                     {.attention_blocks = 1, .qna_heads = 4, .window = {3, 2}}}};
}

config::DetrConfig small_detr() {
  return {.backbone = small_backbone(),
          .hidden = 16,
          .heads = 2,
          .encoder_blocks = 3,
          .decoder_blocks = 2,
          .feedforward = 24,
          .queries = 5,
          .classes = 3,
          .qna = {.blocks = 1, .heads = 2}};
}

config::DetrConfig resnet_config() {
  config::DetrConfig config = small_detr();
  config.backbone = config::ResNetConfig{.depth = 18};
  return config;
}

models::Detr make(const config::DetrConfig& config, uint64_t seed = 81) {
  torch::manual_seed(seed);
  models::Detr model(config);
  testing::randomize(*model);
  model->eval();
  return model;
}

ModelInfo detector_info() {
  return {.name = "small",
          .preprocess = {.resize = 40, .crop = {0, 0}, .filter = image::Filter::kBilinear},
          .labels = {"cat", "dog", "été"},
          .category_ids = {17, 18, 90},
          .training = {{"epochs", 3}}};
}

// A classifier whose body fits the backbone of small_detr().
models::QnAViT make_classifier(config::QnAViTConfig config) {
  config.classes = 4;
  torch::manual_seed(82);
  models::QnAViT model(config);
  testing::randomize(*model);
  return model;
}

using DetectorFile = testing::FileTest;

TEST_F(DetectorFile, RoundTripIsExact) {
  for (const config::DetrConfig& config : {small_detr(), resnet_config()}) {
    const models::Detr model = make(config);
    save_model(path(), model, detector_info());
    EXPECT_EQ(engine::ModelFile::open(path()).kind(), config::Kind::kDetector);
    Loaded<models::Detr> loaded = load_model<models::Detr>(path());
    EXPECT_FALSE(loaded.model->is_training());
    EXPECT_EQ(loaded.model->config(), config);
    expect_same_tensors(*loaded.model, *model);
    const ModelInfo info = detector_info();
    EXPECT_EQ(loaded.info.name, info.name);
    EXPECT_EQ(loaded.info.preprocess, info.preprocess);
    EXPECT_EQ(loaded.info.labels, info.labels);
    EXPECT_EQ(loaded.info.category_ids, info.category_ids);
    EXPECT_EQ(loaded.info.training, info.training);
  }
}

TEST_F(DetectorFile, FindsTheSameBoxes) {
  models::Detr model(small_detr());
  model->eval();
  save_model(path(), model, detector_info());
  const torch::NoGradGuard no_grad;
  const Tensor x = torch::randn({1, 32, 48, 3});
  const Tensor boxes = load_model<models::Detr>(path()).model->forward(x).boxes;
  EXPECT_TRUE(boxes.isfinite().all().item<bool>());
  EXPECT_TRUE(torch::equal(boxes, model->forward(x).boxes));
}

TEST_F(DetectorFile, TrainingTensorsArePassedBy) {
  const models::Detr model = make(small_detr());
  save_model(path(), model, detector_info(), at::kHalf, {{"step", torch::tensor({7})}});
  const format::SafetensorsFile file(path());
  EXPECT_NE(file.find("training/step"), nullptr);
  EXPECT_EQ(file.at("class_embed.weight").dtype, format::DType::kF16);
  EXPECT_EQ(load_model<models::Detr>(path()).model->config(), small_detr());
  models::Detr other = make(small_detr(), 83);
  EXPECT_TRUE(load_weights(other, path()).empty());
}

TEST_F(DetectorFile, TheOtherKindIsNamed) {
  const models::QnAViT classifier = make_classifier(small_backbone());
  save_model(path(), classifier, {});
  EXPECT_EQ(engine::ModelFile::open(path()).kind(), config::Kind::kClassifier);
  expect_complaint([&] { load_model<models::Detr>(path()); }, {path().c_str(), "classifier"});
  save_model(path(), make(small_detr()), detector_info());
  expect_complaint([&] { load_model<models::QnAViT>(path()); }, {path().c_str(), "detector"});
  models::QnAViT model = classifier;
  expect_complaint([&] { load_weights(model, path()); }, {path().c_str(), "detector"});
  const std::string other =
      changed([](Metadata& metadata, Tensors&) { metadata["kind"] = "diffuser"; });
  models::Detr detector = make(small_detr());
  expect_complaint([&] { load_model<models::Detr>(other); }, {other.c_str(), "kind", "'diffuser'"});
  expect_complaint([&] { load_weights(detector, other); }, {"kind", "'diffuser'"});
  expect_complaint([&] { load_model<models::Detr>(path("none")); }, {"none"});
}

TEST_F(DetectorFile, WrongMetadata) {
  save_model(path(), make(small_detr()), detector_info());
  const auto with = [&](const char* key, const char* value) {
    return changed([&](Metadata& metadata, Tensors&) { metadata[key] = value; });
  };
  for (const char* key : {"config", "preprocess", "labels", "category_ids", "training"}) {
    const std::string broken = with(key, "{\"a\": ");
    expect_complaint([&] { load_model<models::Detr>(broken); }, {broken.c_str(), key, "not JSON"});
  }
  const std::string without =
      changed([&](Metadata& metadata, Tensors&) { metadata.erase("config"); });
  expect_complaint([&] { load_model<models::Detr>(without); }, {without.c_str(), "there is no"});
  const std::tuple<const char*, const char*, const char*> wrong[] = {
      {"format", "qna-9", "qna-9"},
      {"config", "{\"heads\": 3}", "heads"},
      {"config", "{\"colour\": 3}", "colour"},
      {"preprocess", "{\"crop\": [0, 0], \"mean\": [0], \"std\": [1]}", "makes 1"},
      {"preprocess", "{\"resize\": 800}", "crop"},
      {"labels", "[\"a\", \"b\"]", "2 labels for 3 classes"},
      {"labels", "[1, 2, 3]", "strings"},
      {"category_ids", "[1, 2]", "2 category_ids for 3 classes"},
      {"category_ids", "[1, 2, 1]", "different"},
      {"category_ids", "[1, 2, 2.5]", "integers"},
      {"category_ids", "[1, 2, 18446744073709551615]", "integers"},
      {"category_ids", "{\"a\": 1}", "integers"},
  };
  for (const auto& [key, value, word] : wrong) {
    const std::string file = with(key, value);
    expect_complaint([&] { load_model<models::Detr>(file); }, {file.c_str(), word});
  }
}

TEST_F(DetectorFile, SmallFilesCannotAskForLargeNetworks) {
  save_model(path(), make(small_detr()), detector_info());
  for (const auto& [key, value] : {std::pair{"hidden", 16384}, {"feedforward", 131072}}) {
    config::DetrConfig config = small_detr();
    nlohmann::json object = config::to_json(config);
    object[key] = value;
    object["encoder_blocks"] = 100;
    const std::string file =
        changed([&](Metadata& metadata, Tensors&) { metadata["config"] = object.dump(); });
    expect_complaint([&] { load_model<models::Detr>(file); },
                     {file.c_str(), "parameters", "the file holds"});
  }
  const std::string resnet = changed([](Metadata& metadata, Tensors&) {
    metadata["config"] = config::to_json(resnet_config()).dump();
  });
  expect_complaint([&] { load_model<models::Detr>(resnet); }, {"parameters", "the file holds"});
}

TEST_F(DetectorFile, MissingExtraAndWrongTensors) {
  save_model(path(), make(small_detr()), detector_info());
  models::Detr model = make(small_detr(), 84);
  const auto expect_refusal = [&](const auto& change, std::initializer_list<const char*> words) {
    const std::string file = changed([&](Metadata&, Tensors& tensors) { change(tensors); });
    expect_complaint([&] { load_model<models::Detr>(file); }, words);
    expect_complaint([&] { load_weights(model, file); }, words);
  };
  expect_refusal([](Tensors& t) { t.erase("input_proj.bias"); }, {"no tensor", "input_proj.bias"});
  expect_refusal([](Tensors& t) { t["more"] = torch::ones({2}); }, {"no place", "'more'"});
  expect_refusal([](Tensors& t) { t["input_proj.bias"] = torch::ones({3}); },
                 {"input_proj.bias", "must be [16]", "got [3]"});
  expect_refusal(
      [](Tensors& t) {
        t["class_embed.weight"] = torch::ones({4, 15});
      },
      {"class_embed.weight", "must be [4, 16]"});
  // A model that exists stays as it is when a file does not fit.
  expect_same_tensors(*model, *make(small_detr(), 84));
}

TEST_F(DetectorFile, FailedSaveLeavesTheFile) {
  const models::Detr model = make(small_detr());
  save_model(path(), model, detector_info());
  const std::string before = bytes_of(path());
  const auto refuse = [&](const auto& change, std::initializer_list<const char*> words) {
    ModelInfo info = detector_info();
    change(info);
    expect_complaint([&] { save_model(path(), model, info); }, words);
  };
  refuse([](ModelInfo& info) { info.labels.pop_back(); }, {"2 labels", "3 classes"});
  refuse([](ModelInfo& info) { info.category_ids.pop_back(); }, {"2 category_ids"});
  refuse([](ModelInfo& info) { info.category_ids[0] = 18; }, {"different"});
  refuse([](ModelInfo& info) { info.preprocess.crop = {224, 224}; }, {"crop", "224"});
  refuse([](ModelInfo& info) { info.preprocess.mean = info.preprocess.std = {0.5f}; },
         {"3 channels", "makes 1"});
  expect_complaint([&] { save_model(path(), model, detector_info(), at::kDouble); }, {"dtype"});
  EXPECT_EQ(bytes_of(path()), before);
}

// ---- weights to start from ----

TEST_F(DetectorFile, OtherNumberOfAnchors) {
  config::DetrConfig config = small_detr();
  config.anchors = true;
  const models::Detr from = make(config);
  save_model(path(), from, detector_info());
  EXPECT_TRUE(load_model<models::Detr>(path()).model->config() == config);
  config.queries = 4;
  models::Detr model = make(config, 85);
  const Tensor anchors = model->refpoint_embed->weight.clone();
  EXPECT_EQ(load_weights(model, path()),
            (LoadReport{"refpoint_embed.weight: [5, 4] -> [4, 4], newly initialised"}));
  EXPECT_TRUE(torch::equal(model->refpoint_embed->weight, anchors));
  models::Detr other = make(small_detr());
  expect_complaint([&] { load_weights(other, path()); },
                   {"in the file are boxes", "model's are vectors", "anchors"});
}

TEST_F(DetectorFile, ClassesOfTheSameNameStay) {
  const models::Detr from = make(small_detr());
  engine::ModelInfo info = detector_info();
  info.labels = {"apple", "pear", "plum"};
  info.category_ids = {1, 2, 3};
  save_model(path(), from, info);
  config::DetrConfig config = small_detr();
  config.classes = 2;
  models::Detr model = make(config, 85);
  EXPECT_EQ(load_weights(model, path(), {"quince", "apple"}),
            (LoadReport{"class_embed: 'apple' is known by name",
                        "class_embed: 1 of 2 classes are new: the mean of the file's 3"}));
  const Tensor rows = from->class_embed->weight;
  EXPECT_TRUE(torch::allclose(model->class_embed->weight[0], rows.slice(0, 0, 3).mean(0)));
  EXPECT_TRUE(torch::equal(model->class_embed->weight[1], rows[0]));
  EXPECT_TRUE(torch::equal(model->class_embed->weight[2], rows[3]));  // "no object"
  EXPECT_TRUE(torch::equal(model->class_embed->bias[1], from->class_embed->bias[0]));
  // The same names in another order.
  models::Detr turned = make(small_detr(), 86);
  load_weights(turned, path(), {"plum", "apple", "pear"});
  EXPECT_TRUE(torch::equal(turned->class_embed->weight[0], rows[2]));
}

TEST_F(DetectorFile, OtherClassesAndQueries) {
  const models::Detr from = make(small_detr());
  save_model(path(), from, detector_info());
  config::DetrConfig config = small_detr();
  config.classes = 7;
  config.queries = 4;
  models::Detr model = make(config, 85);
  const Tensor classes = model->class_embed->weight.clone();
  const Tensor queries = model->query_embed->weight.clone();
  EXPECT_EQ(load_weights(model, path()),
            (LoadReport{"class_embed.weight: [4, 16] -> [8, 16], newly initialised",
                        "class_embed.bias: [4] -> [8], newly initialised",
                        "query_embed.weight: [5, 16] -> [4, 16], newly initialised"}));
  EXPECT_TRUE(torch::equal(model->class_embed->weight, classes));
  EXPECT_TRUE(torch::equal(model->query_embed->weight, queries));
  const auto expected = from->named_parameters();
  for (const auto& item : model->named_parameters()) {
    if (item.key().starts_with("class_") || item.key().starts_with("query_embed")) continue;
    EXPECT_TRUE(torch::equal(item.value(), expected[item.key()])) << item.key();
  }
}

const char* const kBeside =
    "transformer, class_embed, bbox_embed, query_embed, input_proj: not in a classifier's file, "
    "newly initialised";

TEST_F(DetectorFile, BackboneOfAQnAViT) {
  const models::QnAViT classifier = make_classifier(small_backbone());
  save_model(path(), classifier, {});
  models::Detr model = make(small_detr());
  const Tensor transformer = model->transformer->decoder->norm->weight.clone();
  EXPECT_EQ(load_weights(model, path()), (LoadReport{kBeside}));
  const auto from = classifier->named_parameters();
  for (const auto& item : model->backbone().qna_vit->named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), from[item.key()])) << item.key();
  }
  EXPECT_TRUE(torch::equal(model->backbone().norm->weight, from["head.norm.weight"]));
  EXPECT_TRUE(torch::equal(model->backbone().norm->bias, from["head.norm.bias"]));
  EXPECT_TRUE(torch::equal(model->transformer->decoder->norm->weight, transformer));
}

TEST_F(DetectorFile, BackboneOfAQnAViTWithOtherWindows) {
  config::QnAViTConfig config = small_backbone();
  config.stages[1].window = {5, 4};
  save_model(path(), make_classifier(config), {});
  models::Detr model = make(small_detr());
  EXPECT_EQ(load_weights(model, path()),
            (LoadReport{"stages.1.blocks.0.attention.relative_bias: [9, 7, 2] -> [5, 3, 2], "
                        "resized bicubically",
                        kBeside}));
  // Learned positions are none of the backbone's.
  config::DetrConfig learned = small_detr();
  learned.positions = nn::PositionKind::kLearned;
  models::Detr other = make(learned);
  const LoadReport report = load_weights(other, path());
  EXPECT_NE(report.back().find("backbone.1"), std::string::npos) << report.back();
}

TEST_F(DetectorFile, TheFirstStagesOfAQnAViT) {
  const models::QnAViT classifier = make_classifier(small_backbone());
  save_model(path(), classifier, {});
  config::DetrConfig config = small_detr();
  std::get<config::QnAViTConfig>(config.backbone).stages.resize(1);
  models::Detr model = make(config);
  EXPECT_EQ(load_weights(model, path()),
            (LoadReport{"head.norm.weight: [16] -> [8], newly initialised",
                        "head.norm.bias: [16] -> [8], newly initialised",
                        "stages behind number 1: left out", kBeside}));
  const auto from = classifier->named_parameters();
  for (const auto& item : model->backbone().qna_vit->named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), from[item.key()])) << item.key();
  }
}

TEST_F(DetectorFile, BackboneWithoutAHead) {
  save_model(path(), models::QnAViT(small_backbone()), {});
  models::Detr model = make(small_detr());
  EXPECT_EQ(load_weights(model, path()),
            (LoadReport{"backbone.0.norm.weight: not in the file, newly initialised",
                        "backbone.0.norm.bias: not in the file, newly initialised", kBeside}));
}

TEST_F(DetectorFile, BackboneOfTorchvision) {
  torch::manual_seed(86);
  models::ResNet resnet(config::ResNetConfig{.depth = 18, .classes = 6});
  testing::randomize(*resnet);
  Tensors tensors;
  for (const auto& [name, tensor] : named_tensors(*resnet)) tensors[name] = tensor.detach();
  tensors["bn1.num_batches_tracked"] = torch::tensor(int64_t{5});
  tensors["layer1.0.bn1.num_batches_tracked"] = torch::tensor(int64_t{5});
  const std::string file = write("resnet.safetensors", tensors, {{"format", "pt"}});
  models::Detr model = make(resnet_config());
  EXPECT_EQ(load_weights(model, file), (LoadReport{kBeside}));
  const auto buffers = resnet->named_buffers();
  for (const auto& item : model->backbone().resnet->named_buffers()) {
    EXPECT_TRUE(torch::equal(item.value(), buffers[item.key()])) << item.key();
  }
  EXPECT_TRUE(torch::equal(model->backbone().resnet->conv1->weight, resnet->conv1->weight));

  models::Detr other = make(small_detr());
  expect_complaint([&] { load_weights(other, file); }, {"ResNet", "QnA-ViT"});
  config::DetrConfig deeper = resnet_config();
  deeper.backbone = config::ResNetConfig{.depth = 50};
  other = models::Detr(deeper);
  expect_complaint([&] { load_weights(other, file); }, {"layer1.0.conv1.weight"});
}

TEST_F(DetectorFile, BackboneThatDoesNotFit) {
  save_model(path(), make_classifier(small_backbone()), {});
  models::Detr resnet = make(resnet_config());
  expect_complaint([&] { load_weights(resnet, path()); }, {"QnA-ViT", "ResNet-18"});
  config::QnAViTConfig wide = small_backbone();
  wide.base_dim = 16;
  save_model(path(), make_classifier(wide), {});
  models::Detr model = make(small_detr());
  expect_complaint([&] { load_weights(model, path()); }, {"stem.conv.weight", "must be"});
  const std::string nothing = write("nothing.safetensors", {{"a", torch::ones({2})}}, {});
  expect_complaint([&] { load_weights(model, nothing); }, {nothing.c_str(), "convert_pth.py"});
  expect_same_tensors(*model, *make(small_detr()));
}

}  // namespace
}  // namespace qna::checkpoint
