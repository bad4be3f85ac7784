#include "qna/predict/detections.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "qna/predict/detection_images.h"
#include "tests/support/complaint.h"

namespace qna::predict {
namespace {

// Two images with three queries and two classes.
struct Numbers {
  std::vector<float> logits = {2, 0, 0, 0, 1, 0, 0, 0, 5,  //
                               0, 3, 0, 3, 0, 0, 1, 1, 0};
  std::vector<float> boxes = {0.5f, 0.5f, 1, 1, 0.25f, 0.5f, 0.5f, 0.25f, 1, 1, 0.5f, 0.5f,  //
                              0.5f, 0.5f, 0, 0, 0.5f,  0.5f, 0.5f, 0.5f,  0, 0, 0,    0};
  BoxPredictions predictions() const {
    return {.batch = 2, .queries = 3, .classes = 2, .logits = logits.data(), .boxes = boxes.data()};
  }
};

const std::vector<std::array<int64_t, 2>> kSizes = {{100, 200}, {40, 20}};

double probability(double own, double other, double no_object) {
  return std::exp(own) / (std::exp(own) + std::exp(other) + std::exp(no_object));
}

TEST(Detections, OnePerQueryInPixels) {
  const Numbers numbers;
  const std::vector<Detections> found = detections(numbers.predictions(), kSizes);
  ASSERT_EQ(found.size(), 2u);
  ASSERT_EQ(found[0].size(), 3u);
  const Detection& first = found[0][0];
  EXPECT_EQ(first.label, 0);
  EXPECT_EQ(first.query, 0);
  EXPECT_NEAR(first.score, probability(2, 0, 0), 1e-7);
  EXPECT_EQ(first.box, (std::array<double, 4>{0, 0, 200, 100}));
  EXPECT_EQ(found[0][1].label, 1);
  EXPECT_EQ(found[0][1].box, (std::array<double, 4>{0, 37.5, 100, 62.5}));
  // "No object" is never the answer, only makes it less sure; boxes may reach beyond the image.
  EXPECT_EQ(found[0][2].label, 0);
  EXPECT_NEAR(found[0][2].score, probability(0, 0, 5), 1e-7);
  EXPECT_EQ(found[0][2].box, (std::array<double, 4>{150, 75, 250, 125}));
  // Of equal ones the first.
  EXPECT_EQ(found[1][2].label, 0);
}

TEST(Detections, ThresholdAndOrder) {
  const Numbers numbers;
  const auto found = detections(numbers.predictions(), kSizes, {.threshold = 0.5, .sorted = true});
  ASSERT_EQ(found[0].size(), 2u);
  EXPECT_EQ(found[0][0].query, 0);
  EXPECT_EQ(found[0][1].query, 1);
  // Equal scores stay in the order of the queries.
  ASSERT_EQ(found[1].size(), 2u);
  EXPECT_EQ(found[1][0].query, 0);
  EXPECT_EQ(found[1][1].query, 1);
  const auto all = detections(numbers.predictions(), kSizes, {.threshold = 0, .sorted = true});
  EXPECT_EQ(all[0].back().query, 2);
}

TEST(Detections, BadInput) {
  const Numbers good;
  testing::expect_complaint([&] { detections(good.predictions(), {{1, 1}}); }, {"2 images", "1"});
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Numbers numbers;
    numbers.logits[4] = bad;
    testing::expect_complaint([&] { detections(numbers.predictions(), kSizes); }, {"not finite"});
    numbers = {};
    numbers.boxes[9] = bad;
    testing::expect_complaint([&] { detections(numbers.predictions(), kSizes); }, {"not finite"});
  }
  BoxPredictions none = good.predictions();
  none.classes = 0;
  testing::expect_complaint([&] { detections(none, kSizes); }, {"classes"});
}

TEST(DetectionImages, TextOfABox) {
  const Detection found{.score = 0.934, .label = 1, .box = {1, 2, 3, 4}, .query = 0};
  EXPECT_EQ(drawn_box(found, {"dog", "cat"}).text, "cat 93 %");
  EXPECT_EQ(drawn_box(found, {}).text, "class 1 93 %");
  EXPECT_EQ(drawn_box(found, {}).box, found.box);
}

TEST(DetectionImages, BoxesAreDrawnWhereTheyAre) {
  const image::Image image = image::make_image(60, 80, 3);
  const image::Image drawn = draw_boxes(image, {{.label = 0, .box = {10, 20, 40, 50}, .text = ""}});
  const auto is_black = [&](int64_t y, int64_t x) {
    const uint8_t* const pixel = drawn.row(y) + 3 * x;
    return pixel[0] + pixel[1] + pixel[2] == 0;
  };
  EXPECT_FALSE(is_black(20, 25));
  EXPECT_FALSE(is_black(35, 40));
  EXPECT_TRUE(is_black(35, 25));
  EXPECT_TRUE(is_black(5, 5));
}

TEST(DetectionImages, AttentionLiesOverTheImage) {
  const image::Image image = image::make_image(40, 60, 3);
  viz::HeatMap map = viz::make_heat_map(3, 4);  // reaches beyond the image
  map.at(1, 0) = 1;
  const image::Image drawn =
      draw_query_attention(image, map, {16, 16}, {.label = 0, .box = {30, 5, 50, 35}, .text = ""});
  EXPECT_EQ(drawn.height, 40);
  EXPECT_EQ(drawn.width, 60);
  // Yellow at the place with the weight, violet elsewhere.
  EXPECT_GT(drawn.row(24)[3 * 8 + 1], drawn.row(2)[3 * 58 + 1]);
}

}  // namespace
}  // namespace qna::predict
