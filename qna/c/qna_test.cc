// The C interface as its users see it: the shared library alone.
#include "qna/c/qna.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "qna/engine/model.h"
#include "qna/engine/model_file.h"
#include "qna/image/read.h"
#include "tests/support/temporary_folder.h"

namespace qna {
namespace {

const std::string kImages = QNA_TEST_IMAGES;
const std::string kImage = kImages + "/rgb8.png";

// The bytes of a file with random weights.
std::string random_file(const config::NetworkConfig& config, const engine::ModelInfo& info) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.1f);
  const int64_t none = 0;
  std::vector<std::vector<float>> numbers;
  std::vector<format::TensorView> views;
  for (const config::Parameter& p : config::parameters(config)) {
    if (p.kind == config::Parameter::Kind::kCount) {
      views.push_back({p.name, format::DType::kI64, p.shape, std::as_bytes(std::span(&none, 1))});
      continue;
    }
    size_t count = 1;
    for (const int64_t size : p.shape) count *= size;
    for (float& x : numbers.emplace_back(count)) x = normal(random);
    views.push_back({p.name, format::DType::kF32, p.shape,
                     std::as_bytes(std::span<const float>(numbers.back()))});
  }
  return engine::model_file_bytes(config, info, views, format::DType::kF32, "test");
}

config::QnAViTConfig small_classifier(int64_t classes, int64_t channels = 3) {
  return {.image_size = {32, 32},
          .in_channels = channels,
          .classes = classes,
          .base_dim = 8,
          .stages = {{.qna_blocks = 1, .qna_heads = 2},
                     {.attention_blocks = 1, .qna_blocks = 1, .qna_heads = 4, .window = {4, 4}}}};
}

std::string small_detector_file() {
  config::DetrConfig config{.backbone = small_classifier(0),
                            .hidden = 16,
                            .heads = 2,
                            .encoder_blocks = 1,
                            .decoder_blocks = 2,
                            .feedforward = 32,
                            .queries = 7,
                            .classes = 3};
  engine::ModelInfo info{.name = "small", .labels = {"red", "green", "blue"}};
  info.preprocess.resize = 64;
  info.preprocess.crop = {0, 0};
  return random_file(config, info);
}

// Closes itself.
class Model {
 public:
  explicit Model(const std::string& bytes) {
    EXPECT_EQ(qna_open_memory(bytes.data(), bytes.size(), &model_), QNA_OK) << qna_last_error();
  }
  Model() { EXPECT_EQ(qna_open(QNA_WEIGHTS, &model_), QNA_OK) << qna_last_error(); }
  ~Model() { qna_close(model_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  operator qna_model*() const { return model_; }

 private:
  qna_model* model_ = nullptr;
};

std::vector<std::pair<int64_t, double>> top(const qna_model* model, const std::string& path) {
  qna_class best[5];
  size_t count = 0;
  EXPECT_EQ(qna_predict_file(model, path.c_str(), 5, best, &count), QNA_OK) << qna_last_error();
  std::vector<std::pair<int64_t, double>> classes;
  for (size_t i = 0; i < count; ++i) classes.emplace_back(best[i].index, best[i].probability);
  return classes;
}

TEST(C, Version) { EXPECT_STREQ(qna_version(), "0.1.0"); }

TEST(C, DescribesAClassifier) {
  const Model model;
  qna_description d;
  ASSERT_EQ(qna_describe(model, &d), QNA_OK);
  EXPECT_EQ(d.kind, QNA_CLASSIFIER);
  EXPECT_EQ(d.classes, 1000);
  EXPECT_EQ(d.channels, 3);
  EXPECT_GT(d.height, 0);
  EXPECT_GT(d.features, 0);
  EXPECT_EQ(d.queries, 0);
  EXPECT_TRUE(nlohmann::json::parse(d.config).contains("stages"));
  ASSERT_NE(qna_label(model, 0), nullptr);
  EXPECT_STRNE(qna_label(model, 0), "");
  EXPECT_EQ(qna_label(model, 1000), nullptr);
  EXPECT_EQ(qna_label(model, -1), nullptr);
}

TEST(C, SameAnswerFromFileMemoryAndPixels) {
  const Model model;
  const auto expected = top(model, kImage);
  ASSERT_EQ(expected.size(), 5u);
  for (size_t i = 1; i < 5; ++i) EXPECT_GE(expected[i - 1].second, expected[i].second);
  const std::string bytes = testing::content_of(kImage);
  const image::Image image = image::read_image(kImage);
  // Rows that are further apart than they are long.
  const int64_t stride = image.row_bytes() + 5;
  std::vector<uint8_t> rgb(image.height * stride, 255);
  for (int64_t y = 0; y < image.height; ++y) {
    std::memcpy(rgb.data() + y * stride, image.row(y), image.row_bytes());
  }
  const qna_pixels pixels[] = {{image.pixels.data(), image.height, image.width, 0},
                               {rgb.data(), image.height, image.width, stride}};
  for (int way = 0; way < 3; ++way) {
    qna_class best[5];
    size_t count = 0;
    ASSERT_EQ(way == 2 ? qna_predict_memory(model, bytes.data(), bytes.size(), 5, best, &count)
                       : qna_predict_pixels(model, &pixels[way], 5, best, &count),
              QNA_OK)
        << qna_last_error();
    ASSERT_EQ(count, 5u);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(best[i].index, expected[i].first);
      EXPECT_EQ(best[i].probability, expected[i].second);
    }
  }
}

// The answers move, but not far.
TEST(C, WeightsKeptAsBFloat16) {
  const Model plain;
  const auto expected = top(plain, kImage);
  const std::string bytes = testing::content_of(QNA_WEIGHTS);
  qna_model *file = nullptr, *memory = nullptr, *wide = nullptr;
  ASSERT_EQ(qna_open_as(QNA_WEIGHTS, QNA_BFLOAT16, &file), QNA_OK) << qna_last_error();
  ASSERT_EQ(qna_open_memory_as(bytes.data(), bytes.size(), QNA_BFLOAT16, &memory), QNA_OK);
  ASSERT_EQ(qna_open_as(QNA_WEIGHTS, QNA_FLOAT32, &wide), QNA_OK);
  EXPECT_EQ(top(wide, kImage), expected);
  const auto got = top(file, kImage);
  EXPECT_EQ(top(memory, kImage), got);
  EXPECT_NE(got, expected);
  EXPECT_EQ(got[0].first, expected[0].first);
  EXPECT_NEAR(got[0].second, expected[0].second, 0.05);
  for (qna_model* model : {file, memory, wide}) qna_close(model);
}

TEST(C, NoMoreClassesThanThereAre) {
  engine::ModelInfo info;
  info.preprocess.mean = info.preprocess.std = {0.5f};
  const Model model(random_file(small_classifier(3, 1), info));  // of grey images
  const auto classes = top(model, kImage);
  ASSERT_EQ(classes.size(), 3u);
  EXPECT_NEAR(classes[0].second + classes[1].second + classes[2].second, 1, 1e-6);
  EXPECT_EQ(qna_label(model, 0), nullptr);  // the file has no names
  size_t count = 9;
  qna_class best;
  EXPECT_EQ(qna_predict_file(model, kImage.c_str(), 0, &best, &count), QNA_OK);
  EXPECT_EQ(count, 0u);
}

TEST(C, Features) {
  const Model model;
  qna_description d;
  ASSERT_EQ(qna_describe(model, &d), QNA_OK);
  const std::string bytes = testing::content_of(kImage);
  std::vector<float> from_file(d.features), from_memory(d.features);
  ASSERT_EQ(qna_features_file(model, kImage.c_str(), from_file.size(), from_file.data()), QNA_OK)
      << qna_last_error();
  ASSERT_EQ(qna_features_memory(model, bytes.data(), bytes.size(), from_memory.size(),
                                from_memory.data()),
            QNA_OK);
  EXPECT_EQ(from_file, from_memory);
  double sum = 0;
  for (const float x : from_file) sum += std::abs(x);
  EXPECT_GT(sum, 0);
  EXPECT_EQ(qna_features_file(model, kImage.c_str(), from_file.size() - 1, from_file.data()),
            QNA_ERROR_ARGUMENT);
  EXPECT_NE(std::strstr(qna_last_error(), "capacity"), nullptr);
}

// The class of a picture that is made ready by hand is that of the picture.
TEST(C, Logits) {
  const Model model;
  qna_description d;
  ASSERT_EQ(qna_describe(model, &d), QNA_OK);
  constexpr int64_t kBatch = 2, kHeight = 40, kWidth = 52;
  std::vector<float> pixels(kBatch * kHeight * kWidth * d.channels);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = std::sin(static_cast<float>(i) * 0.37f);
  std::vector<float> both(kBatch * d.classes), second(d.classes);
  ASSERT_EQ(qna_logits(model, pixels.data(), kBatch, kHeight, kWidth, both.size(), both.data()),
            QNA_OK)
      << qna_last_error();
  const float* half = pixels.data() + pixels.size() / 2;
  ASSERT_EQ(qna_logits(model, half, 1, kHeight, kWidth, second.size(), second.data()), QNA_OK);
  EXPECT_EQ(second, std::vector<float>(both.begin() + d.classes, both.end()));
  const qna::engine::Model same = qna::engine::Model::open(QNA_WEIGHTS);
  qna::engine::Context context;
  std::vector<float> expected(both.size());
  same.classify({.batch = kBatch, .height = kHeight, .width = kWidth, .pixels = pixels.data()},
                expected.data(), context);
  EXPECT_EQ(both, expected);

  const auto expect = [&](qna_status got, qna_status wanted, const char* words) {
    EXPECT_EQ(got, wanted);
    EXPECT_NE(std::strstr(qna_last_error(), words), nullptr) << qna_last_error();
  };
  const auto run = [&](const qna_model* m, const float* x, int64_t batch, int64_t height,
                       int64_t width, size_t capacity) {
    return qna_logits(m, x, batch, height, width, capacity, both.data());
  };
  const float* x = pixels.data();
  expect(run(nullptr, x, 1, 8, 8, 99), QNA_ERROR_ARGUMENT, "model must not be NULL");
  expect(run(model, nullptr, 1, 8, 8, 99), QNA_ERROR_ARGUMENT, "pixels must not be NULL");
  expect(run(model, x, 0, 8, 8, 99), QNA_ERROR_ARGUMENT, "batch must be from 1 to 1048576, got 0");
  expect(run(model, x, 1, -1, 8, 99), QNA_ERROR_ARGUMENT, "height must be from 1");
  expect(run(model, x, 1, 8, 1 << 21, 99), QNA_ERROR_ARGUMENT, "width must be from 1");
  expect(run(model, x, 2, 8, 8, 19), QNA_ERROR_ARGUMENT, "capacity must be at least 20");
  const Model detector(small_detector_file());
  expect(run(detector, x, 1, 8, 8, 99), QNA_ERROR_KIND, "detector");
}

TEST(C, Detects) {
  const Model model(small_detector_file());
  qna_description d;
  ASSERT_EQ(qna_describe(model, &d), QNA_OK);
  EXPECT_EQ(d.kind, QNA_DETECTOR);
  EXPECT_EQ(d.queries, 7);
  EXPECT_EQ(d.features, 0);
  EXPECT_STREQ(d.name, "small");
  qna_box boxes[7];
  size_t count = 0;
  ASSERT_EQ(qna_detect_file(model, kImage.c_str(), 0, 7, boxes, &count), QNA_OK)
      << qna_last_error();
  ASSERT_EQ(count, 7u);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_NE(qna_label(model, boxes[i].index), nullptr);
    EXPECT_LE(boxes[i].left, boxes[i].right);
    EXPECT_LE(boxes[i].top, boxes[i].bottom);
    if (i > 0) {
      EXPECT_GE(boxes[i - 1].score, boxes[i].score);
    }
  }
  const image::Image image = image::read_image(kImage);
  const qna_pixels pixels = {image.pixels.data(), image.height, image.width, 0};
  qna_box two[2];
  ASSERT_EQ(qna_detect_pixels(model, &pixels, 0, 2, two, &count), QNA_OK);
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(two[1].score, boxes[1].score);
  EXPECT_EQ(two[1].left, boxes[1].left);
  ASSERT_EQ(qna_detect_pixels(model, &pixels, 1, 2, two, &count), QNA_OK);
  EXPECT_EQ(count, 0u);
}

TEST(C, WrongArguments) {
  const Model model;
  qna_class best[1];
  size_t count = 0;
  const auto expect = [&](qna_status got, qna_status wanted, const char* word) {
    EXPECT_EQ(got, wanted);
    EXPECT_NE(std::strstr(qna_last_error(), word), nullptr) << qna_last_error();
  };
  qna_model* other = nullptr;
  const uint8_t rgb[12] = {};
  const char text[] = "no picture";
  expect(qna_open(nullptr, &other), QNA_ERROR_ARGUMENT, "path must not be NULL");
  expect(qna_open(QNA_WEIGHTS, nullptr), QNA_ERROR_ARGUMENT, "model must not be NULL");
  expect(qna_open("/nowhere.safetensors", &other), QNA_ERROR_MODEL, "/nowhere.safetensors");
  expect(qna_open(kImage.c_str(), &other), QNA_ERROR_MODEL, "rgb8.png");
  expect(qna_open_memory(text, sizeof(text), &other), QNA_ERROR_MODEL, "in memory");
  expect(qna_open_as(QNA_WEIGHTS, 2, &other), QNA_ERROR_ARGUMENT,
         "weight_type must be QNA_FLOAT32 (0) or QNA_BFLOAT16 (1), got 2");
  EXPECT_EQ(other, nullptr);
  expect(qna_predict_file(nullptr, kImage.c_str(), 1, best, &count), QNA_ERROR_ARGUMENT, "model");
  expect(qna_predict_file(model, nullptr, 1, best, &count), QNA_ERROR_ARGUMENT, "path");
  expect(qna_predict_file(model, kImage.c_str(), 1, nullptr, &count), QNA_ERROR_ARGUMENT, "best");
  expect(qna_predict_file(model, kImage.c_str(), 1, best, nullptr), QNA_ERROR_ARGUMENT, "count");
  expect(qna_predict_file(model, "/nowhere.jpg", 1, best, &count), QNA_ERROR_IMAGE, "nowhere");
  expect(qna_predict_memory(model, text, sizeof(text), 1, best, &count), QNA_ERROR_IMAGE,
         "picture in memory");
  expect(qna_predict_pixels(model, nullptr, 1, best, &count), QNA_ERROR_ARGUMENT, "pixels");
  const qna_pixels no_rgb = {nullptr, 2, 2, 0}, flat = {rgb, 0, 2, 0}, narrow = {rgb, 2, 2, 5};
  expect(qna_predict_pixels(model, &no_rgb, 1, best, &count), QNA_ERROR_ARGUMENT, "rgb");
  expect(qna_predict_pixels(model, &flat, 1, best, &count), QNA_ERROR_ARGUMENT, "height");
  expect(qna_predict_pixels(model, &narrow, 1, best, &count), QNA_ERROR_ARGUMENT, "stride");
  qna_box box;
  expect(qna_detect_file(model, kImage.c_str(), 0.5, 1, &box, &count), QNA_ERROR_KIND,
         "classifier");
  const Model detector(small_detector_file());
  expect(qna_detect_file(detector, kImage.c_str(), NAN, 1, &box, &count), QNA_ERROR_ARGUMENT,
         "threshold");
  expect(qna_predict_file(detector, kImage.c_str(), 1, best, &count), QNA_ERROR_KIND, "detector");
  expect(qna_set_threads(model, -1), QNA_ERROR_ARGUMENT, "threads");
  expect(qna_describe(model, nullptr), QNA_ERROR_ARGUMENT, "description");
  EXPECT_EQ(qna_label(nullptr, 0), nullptr);
  qna_close(nullptr);
}

// Errors of one thread are not those of another, and the answers are the same whoever asks.
TEST(C, ManyThreadsOnOneModel) {
  const Model model;
  const char* const names[] = {"rgb8.png", "grey8.png", "420.jpg"};
  std::vector<std::vector<std::pair<int64_t, double>>> expected;
  for (const char* name : names) expected.push_back(top(model, kImages + "/" + name));
  ASSERT_EQ(qna_set_threads(model, 1), QNA_OK);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 9; ++i) {
        const size_t which = (t + i) % 3;
        EXPECT_EQ(top(model, kImages + "/" + names[which]), expected[which]);
        if (i == 4 && t == 0) {
          EXPECT_EQ(qna_set_threads(model, 2), QNA_OK);
        }
      }
      const std::string path = "/nowhere" + std::to_string(t);
      qna_class best;
      size_t count = 0;
      EXPECT_EQ(qna_predict_file(model, path.c_str(), 1, &best, &count), QNA_ERROR_IMAGE);
      EXPECT_NE(std::strstr(qna_last_error(), path.c_str()), nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace qna
