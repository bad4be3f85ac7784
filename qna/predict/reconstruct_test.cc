#include "qna/predict/reconstruct.h"

#include <gtest/gtest.h>

#include <cmath>

#include "qna/data/detection_testonly.h"
#include "tests/support/random_model.h"

namespace qna::predict {
namespace {

using data::testing::noise_image;
using testing::random_model;
using testing::small_preprocess;

TEST(Reconstruct, NumbersAndImages) {
  config::Preprocess preprocess;
  preprocess.mean = {0.5f, 0.25f, 0};
  preprocess.std = {0.5f, 1, 2};
  std::vector<float> numbers = {0, 0, 0, 1, 0.5f, 0.5f};
  to_unit(numbers, preprocess);
  EXPECT_EQ(numbers, (std::vector<float>{0.5f, 0.25f, 0, 1, 0.75f, 1}));
  const image::Image image = to_image(
      std::vector<float>{-1, 0, 0.5f / 255, 1.5f / 255, 0.999f, 7, std::nanf(""), 1, 0.25f}, 1, 3,
      3);
  // Halves go to the even number.
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{0, 0, 0, 2, 255, 255, 0, 255, 64}));
  testing::expect_complaint([&] { to_image(numbers, 2, 2, 3); }, {"12", "6"});
}

TEST(Reconstruct, OneImage) {
  const engine::Model model =
      random_model(testing::small_auto_encoder(), {.preprocess = small_preprocess()});
  engine::Context context(1);
  const Reconstructed result =
      reconstruct(model, noise_image(1, 20, 30), model.info().preprocess, context);
  EXPECT_EQ(result.original.height, 16);
  EXPECT_EQ(result.made.width, 16);
  EXPECT_GT(result.l1, 0);
  EXPECT_LT(result.l1, 1);
  EXPECT_GT(result.psnr, 0);
  EXPECT_LT(result.ssim, 1);
  const image::Image both = result.side_by_side();
  EXPECT_EQ(both.height, 16);
  EXPECT_EQ(both.width, 36);
}

TEST(Reconstruct, OtherKindsAreRefused) {
  const engine::Model model =
      random_model(testing::small_classifier(), {.preprocess = small_preprocess()});
  engine::Context context(1);
  testing::expect_complaint(
      [&] { reconstruct(model, noise_image(1, 16, 16), small_preprocess(), context); },
      {"classifier"});
}

}  // namespace
}  // namespace qna::predict
