#include "qna/predict/detect.h"

#include <gtest/gtest.h>

#include "qna/data/detection_testonly.h"
#include "qna/predict/detection_images.h"
#include "tests/support/random_model.h"

namespace qna::predict {
namespace {

using data::testing::noise_image;
using testing::random_model;
using testing::small_detector;
using testing::small_preprocess;

TEST(FindObjects, OneImage) {
  const config::Preprocess preprocess = small_preprocess(false);
  const engine::Model model = random_model(small_detector(), {.preprocess = preprocess});
  engine::Context context(1);
  const image::Image image = noise_image(1, 32, 48);
  const FoundObjects all = find_objects(model, image, preprocess, {}, context, true);
  ASSERT_EQ(all.found.size(), 5u);  // one of each query
  ASSERT_EQ(all.attention.size(), 5u);
  for (size_t i = 0; i < all.found.size(); ++i) {
    EXPECT_EQ(all.found[i].query, static_cast<int64_t>(i));
    EXPECT_GT(all.found[i].score, 0);
    EXPECT_LT(all.found[i].label, 3);
    // 16 x 24 pixels are seen, of which 4 x 4 make a position.
    EXPECT_EQ(all.attention[i].height, 4);
    EXPECT_EQ(all.attention[i].width, 6);
    double sum = 0;
    for (const float weight : all.attention[i].values) sum += weight;
    EXPECT_NEAR(sum, 1, 1e-5);
  }
  EXPECT_EQ(all.attention_stride, (std::array<double, 2>{8, 8}));

  // Attention changes nothing, sorting only the order, and attention follows it.
  const FoundObjects sorted =
      find_objects(model, image, preprocess, {.sorted = true}, context, true);
  const FoundObjects plain = find_objects(model, image, preprocess, {.sorted = true}, context);
  EXPECT_TRUE(plain.attention.empty());
  ASSERT_EQ(sorted.found.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const Detection& found = sorted.found[i];
    EXPECT_EQ(plain.found[i].box, found.box);
    EXPECT_EQ(all.found[found.query].box, found.box);
    EXPECT_EQ(all.attention[found.query].values, sorted.attention[i].values);
    if (i > 0) {
      EXPECT_GE(sorted.found[i - 1].score, found.score);
    }
  }
}

// Where the sides are multiples of the stride, quotients of a picture's sides by it may be above
// the map's by rounding.
TEST(DrawQueryAttention, EverySizeOfPicture) {
  constexpr int64_t kCells = 15;
  const viz::HeatMap map = viz::make_heat_map(kCells, 1);
  int64_t above = 0;
  for (int64_t height = 1; height < 2000; ++height) {
    // As find_objects() has it: 32 pixels of 480 that are seen.
    const double stride = 32 * static_cast<double>(height) / (32.0 * kCells);
    above += static_cast<double>(height) / stride > static_cast<double>(kCells);
    const image::Image drawn =
        draw_query_attention(noise_image(1, height, 1), map, {stride, 1}, {.text = ""});
    EXPECT_EQ(drawn.height, height);
  }
  EXPECT_GT(above, 0);
}

TEST(FindObjects, OtherKindsAreRefused) {
  const engine::Model model =
      random_model(testing::small_classifier(), {.preprocess = small_preprocess()});
  engine::Context context(1);
  testing::expect_complaint(
      [&] { find_objects(model, noise_image(1, 16, 16), small_preprocess(), {}, context); },
      {"classifier"});
}

}  // namespace
}  // namespace qna::predict
