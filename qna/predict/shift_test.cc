#include "qna/predict/shift.h"

#include <gtest/gtest.h>

#include "qna/base/error.h"
#include "qna/data/loader_testonly.h"
#include "tests/support/complaint.h"
#include "tests/support/random_model.h"

namespace qna::predict {
namespace {

using data::testing::noise;

TEST(ShiftImage, MovesAndMirrorsAtTheBorder) {
  const std::vector<float> image = {1, 2, 3,  //
                                    4, 5, 6,  //
                                    7, 8, 9};
  const auto moved = [&](int64_t down, int64_t right) {
    std::vector<float> out(9);
    shift_image(image, 3, 3, 1, down, right, out);
    return out;
  };
  EXPECT_EQ(moved(0, 0), image);
  EXPECT_EQ(moved(1, 0), (std::vector<float>{1, 2, 3, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(moved(0, -1), (std::vector<float>{2, 3, 3, 5, 6, 6, 8, 9, 9}));
  EXPECT_EQ(moved(-2, 2), (std::vector<float>{8, 7, 7, 8, 7, 7, 5, 4, 4}));
  // Channels stay together.
  std::vector<float> out(8);
  shift_image(std::vector<float>{1, 10, 2, 20, 3, 30, 4, 40}, 2, 2, 2, 0, 1, out);
  EXPECT_EQ(out, (std::vector<float>{1, 10, 1, 10, 3, 30, 3, 30}));
}

// Against images that are moved one by one.
TEST(EvaluateShifts, IsWhatMovedImagesGive) {
  const config::Preprocess preprocess = testing::small_preprocess();
  const engine::Model model =
      testing::random_model(testing::small_classifier(), {.preprocess = preprocess});
  engine::Context context(1);
  const auto dataset = noise(7, {});
  const auto loader_of = [&](int64_t batch) {
    return data::Loader(dataset, preprocess, std::nullopt, {},
                        {.batch = batch, .workers = 1, .shuffle = false});
  };
  data::Loader all = loader_of(7);
  all.start(0);
  const data::Batch batch = *all.next();
  const auto size = static_cast<size_t>(batch.height * batch.width * batch.channels);
  const auto answer = [&](int64_t i, int64_t down, int64_t right) {
    std::vector<float> pixels(size), logits(3);
    shift_image(std::span(batch.pixels).subspan(i * size, size), batch.height, batch.width,
                batch.channels, down, right, pixels);
    model.classify(
        {.batch = 1, .height = batch.height, .width = batch.width, .pixels = pixels.data()},
        logits.data(), context);
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  };
  double right = 0, same = 0;
  for (int64_t i = 0; i < 7; ++i) {
    for (const int64_t down : {-3, 3}) {
      for (const int64_t across : {-3, 3}) {
        right += answer(i, down, across) == batch.labels[i];
        same += answer(i, down, across) == answer(i, 0, 0);
      }
    }
  }
  data::Loader loader = loader_of(4);
  const auto found = evaluate_shifts(model, loader, std::vector<int64_t>{1, 3}, context);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].pixels, 3);
  EXPECT_NEAR(found[1].top1, 100 * right / 28, 1e-9);
  EXPECT_NEAR(found[1].same, 100 * same / 28, 1e-9);
  for (const int64_t wrong : {0, 1000}) {
    EXPECT_NE(testing::complaint([&] {
                evaluate_shifts(model, loader, std::vector<int64_t>{wrong}, context);
              }).find("shift must be from 1 to below"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace qna::predict
