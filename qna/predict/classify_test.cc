#include "qna/predict/classify.h"

#include <gtest/gtest.h>

#include <cmath>

#include "qna/data/detection_testonly.h"
#include "qna/data/preprocess.h"
#include "qna/predict/attention.h"
#include "qna/predict/features.h"
#include "qna/predict/input.h"
#include "tests/support/random_model.h"

namespace qna::predict {
namespace {

using data::testing::noise_image;
using testing::random_model;
using testing::small_classifier;
using testing::small_preprocess;

const engine::ModelInfo kInfo = {.preprocess = small_preprocess()};

TEST(Classes, Softmax) {
  const Classes classes = softmax(std::vector<float>{1000, 999, 1001});
  double sum = 0;
  for (const float p : classes.probabilities) sum += p;
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_NEAR(classes.probabilities[2] / classes.probabilities[0], std::exp(1), 1e-5);
}

TEST(Classes, Top) {
  const Classes classes{{0.1f, 0.4f, 0.4f, 0.05f, 0.05f}};
  const std::vector<ClassProbability> best = classes.top(3);
  ASSERT_EQ(best.size(), 3u);
  EXPECT_EQ(best[0].label, 1);  // the lower one of two equal ones
  EXPECT_EQ(best[1].label, 2);
  EXPECT_EQ(best[2].label, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(best[0].probability), 0.4f);
  EXPECT_EQ(classes.top(99).size(), 5u);
  EXPECT_TRUE(classes.top(0).empty());
  // What is no number comes last.
  EXPECT_EQ((Classes{{std::nanf(""), 0.2f}}.top(1)[0].label), 1);
}

TEST(Classify, OneImageAndABatch) {
  const engine::Model model = random_model(small_classifier(), kInfo);
  engine::Context context(1);
  const image::Image a = noise_image(1, 20, 30), b = noise_image(2, 18, 17);
  std::vector<float> pixels;
  for (const image::Image& image : {a, b}) {
    const Input input(data::fit(image, kInfo.preprocess), kInfo.preprocess);
    pixels.insert(pixels.end(), input.pixels().begin(), input.pixels().end());
  }
  const std::vector<Classes> both =
      classify(model, {.batch = 2, .height = 16, .width = 16, .pixels = pixels.data()}, context);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].probabilities, classify(model, a, context).probabilities);
  EXPECT_EQ(both[1].probabilities, classify(model, b, context).probabilities);
  EXPECT_NE(both[0].probabilities, both[1].probabilities);
}

TEST(Classify, OtherKindsAreRefused) {
  engine::Context context(1);
  const image::Image image = noise_image(1, 16, 16);
  const engine::Model no_head = random_model(small_classifier(0), kInfo);
  testing::expect_complaint([&] { classify(no_head, image, context); }, {"no classes"});
  const engine::Model detector =
      random_model(testing::small_detector(), {.preprocess = small_preprocess(false)});
  testing::expect_complaint([&] { classify(detector, image, context); }, {"detector"});
}

TEST(Features, PooledAndMap) {
  engine::Context context(1);
  const Input input(noise_image(1, 16, 20), kInfo.preprocess);
  for (const int64_t classes : {3, 0}) {
    const engine::Model model = random_model(small_classifier(classes), kInfo);
    const Features pooled = features(model, input.images(), FeatureKind::kPooled, context);
    EXPECT_EQ(pooled.shape, (std::vector<int64_t>{1, 16}));
    EXPECT_EQ(pooled.values.size(), 16u);
    const Features map = features(model, input.images(), FeatureKind::kMap, context);
    EXPECT_EQ(map.shape, (std::vector<int64_t>{1, 4, 5, 16}));
    ASSERT_EQ(map.values.size(), 4u * 5 * 16);
    if (classes > 0) continue;
    // Without a head the vector is the map's mean.
    for (int64_t c = 0; c < 16; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < 20; ++i) sum += map.values[i * 16 + c];
      EXPECT_NEAR(pooled.values[c], sum / 20, 1e-5);
    }
  }
}

TEST(Attention, ChosenLayersInTheNetworksOrder) {
  const engine::Model model = random_model(small_classifier(), kInfo);
  engine::Context context(1);
  const Input input(noise_image(1, 16, 20), kInfo.preprocess);
  const std::vector<engine::LayerAttention> found =
      attention_of(model, input.images(),
                   {.layers = {"1.0", "0.0", "0.downsample"}, .kernel_side = 1000}, context);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].layer.name, "stages.0.blocks.0");
  EXPECT_EQ(found[1].layer.name, "stages.0.downsample");
  EXPECT_EQ(found[2].layer.name, "stages.1.blocks.0");
  // Every window gives 1 away, for each query and head.
  const engine::AttentionMaps& maps = found[0].maps;
  EXPECT_EQ(maps.height, 8);
  EXPECT_EQ(maps.width, 10);
  double sum = 0;
  for (const float p : maps.attention) sum += p;
  EXPECT_NEAR(sum, 8 * 10 * maps.queries * maps.heads, 1e-2);
  EXPECT_FALSE(found[0].kernels.attention.empty());
  EXPECT_TRUE(found[2].kernels.attention.empty());  // self-attention
  EXPECT_FALSE(found[2].layer.learned_queries);
  testing::expect_complaint(
      [&] { attention_of(model, input.images(), {.layers = {"9.9"}}, context); }, {"'9.9'"});
}

}  // namespace
}  // namespace qna::predict
