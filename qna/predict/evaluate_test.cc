#include "qna/predict/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "qna/data/detection_testonly.h"
#include "qna/data/loader_testonly.h"
#include "qna/predict/classify.h"
#include "qna/predict/detect.h"
#include "qna/predict/reconstruct.h"
#include "tests/support/random_model.h"

namespace qna::predict {
namespace {

using data::testing::noise;
using testing::random_model;
using testing::small_preprocess;

data::LoaderOptions in_order(int64_t batch) {
  return {.batch = batch, .workers = 1, .shuffle = false, .skip_broken = true};
}

const engine::ModelInfo kEvaluatedInfo = {.preprocess = small_preprocess()};

TEST(EvaluateClassifier, IsWhatSingleImagesGive) {
  const engine::Model model = random_model(testing::small_classifier(), kEvaluatedInfo);
  engine::Context context(1);
  const auto dataset = noise(11, {4});
  double loss = 0, right = 0;
  for (const int64_t i : {0, 1, 2, 3, 5, 6, 7, 8, 9, 10}) {
    const Classes classes = classify(model, dataset->read(i, 3), context);
    loss -= std::log(static_cast<double>(classes.probabilities[dataset->label(i)]));
    right += classes.top(1)[0].label == dataset->label(i);
  }
  for (const int64_t batch : {1, 4, 64}) {
    data::Loader loader(dataset, kEvaluatedInfo.preprocess, std::nullopt, {}, in_order(batch));
    int64_t told = 0;
    const Evaluation result =
        evaluate_classifier(model, loader, context,
                            {.tell = [&](int64_t done, int64_t total) { told += done == total; }});
    EXPECT_EQ(told, 1);
    EXPECT_EQ(result.images, 10);
    EXPECT_NEAR(result.loss, loss / 10, 1e-6);
    EXPECT_NEAR(result.top1, 100 * right / 10, 1e-9);
    EXPECT_EQ(result.top5, 100);  // of three classes
    ASSERT_EQ(result.confusion.size(), 9u);
    EXPECT_EQ(std::accumulate(result.confusion.begin(), result.confusion.end(), int64_t{0}), 10);
    int64_t diagonal = 0;
    for (int64_t i = 0; i < 3; ++i) diagonal += result.confusion[4 * i];
    EXPECT_EQ(static_cast<double>(diagonal), right);
    ASSERT_EQ(result.predictions.size(), 10u);
    EXPECT_EQ(result.predictions[4].image, 5);  // 4 is broken
  }
}

TEST(EvaluateClassifier, ProcessesAddUp) {
  const engine::Model model = random_model(testing::small_classifier(), kEvaluatedInfo);
  engine::Context context(1);
  // Every process's sums, added to those of the ones before.
  std::vector<std::vector<double>> sums;
  std::array<Evaluation, 2> results;
  for (int rank = 0; rank < 2; ++rank) {
    data::LoaderOptions options = in_order(4);
    options.rank = rank;
    options.ranks = 2;
    data::Loader loader(noise(7), kEvaluatedInfo.preprocess, std::nullopt, {}, options);
    size_t place = 0;
    results[rank] =
        evaluate_classifier(model, loader, context, {.sum = [&](std::span<double> numbers) {
                              if (rank == 0) {
                                sums.emplace_back(numbers.begin(), numbers.end());
                              } else {
                                for (size_t i = 0; i < numbers.size(); ++i)
                                  numbers[i] += sums[place][i];
                              }
                              ++place;
                            }});
  }
  data::Loader loader(noise(7), kEvaluatedInfo.preprocess, std::nullopt, {}, in_order(4));
  const Evaluation whole = evaluate_classifier(model, loader, context);
  EXPECT_EQ(results[1].images, 7);
  EXPECT_NEAR(results[1].loss, whole.loss, 1e-12);
  EXPECT_EQ(results[1].confusion, whole.confusion);
  EXPECT_EQ(results[0].predictions.size() + results[1].predictions.size(), 7u);
}

TEST(EvaluateClassifier, Mistakes) {
  engine::Context context(1);
  const engine::Model model = random_model(testing::small_classifier(), kEvaluatedInfo);
  data::Loader broken(noise(2, {0, 1}), kEvaluatedInfo.preprocess, std::nullopt, {}, in_order(2));
  testing::expect_complaint([&] { evaluate_classifier(model, broken, context); }, {"none of"});
  const engine::Model four = random_model(testing::small_classifier(4), kEvaluatedInfo);
  data::Loader three(noise(2), kEvaluatedInfo.preprocess, std::nullopt, {}, in_order(2));
  testing::expect_complaint([&] { evaluate_classifier(four, three, context); },
                            {"4 classes", "got 3"});
}

// Images of two sizes; one is broken.
class EvaluateDetector : public ::testing::Test {
 protected:
  EvaluateDetector() {
    for (const int64_t id : {1, 2, 3, 4}) {
      const int64_t height = 16 + 4 * (id % 2), width = 24;
      folder_.add_image(id, height, width);
      if (id == 3) {
        folder_.put("pictures/3.png", "no picture");
      } else {
        folder_.write_image(id, height, width);
      }
      folder_.add_object(id, 7, {2, 3, 10, 8});
    }
    dataset_ = folder_.open();
  }

  DetectorEvaluation evaluate(int64_t batch, const SeeOutput& see = nullptr) {
    data::DetectionLoader loader(dataset_, preprocess_, std::nullopt, in_order(batch));
    return evaluate_detector(model_, loader, *dataset_, {3, 7, 90}, context_, {}, see);
  }

  const config::Preprocess preprocess_ = small_preprocess(false);
  const engine::Model model_ = random_model(testing::small_detector(), {.preprocess = preprocess_});
  data::testing::DetectionFolder folder_;
  std::shared_ptr<const data::DetectionDataset> dataset_;
  engine::Context context_{1};
};

TEST_F(EvaluateDetector, IsWhatSingleImagesGive) {
  for (const int64_t batch : {1, 2, 4}) {
    const DetectorEvaluation result = evaluate(batch);
    EXPECT_EQ(result.images, 3);
    ASSERT_EQ(result.detections.size(), 15u);  // 5 queries
    size_t place = 0;
    for (const int64_t i : {0, 1, 3}) {
      const FoundObjects single =
          find_objects(model_, dataset_->read(i), preprocess_, {}, context_);
      for (const Detection& found : single.found) {
        const coco::Detection& one = result.detections[place++];
        EXPECT_EQ(one.image_id, i + 1);
        EXPECT_EQ(one.category_id, (std::array<int64_t, 3>{3, 7, 90}[found.label]));
        EXPECT_NEAR(one.score, found.score, 1e-6);
        EXPECT_NEAR(one.box.x, found.box[0], 1e-4);
        EXPECT_NEAR(one.box.height, found.box[3] - found.box[1], 1e-4);
      }
    }
    EXPECT_EQ(result.numbers.categories, 3);
  }
}

TEST_F(EvaluateDetector, WhoLooksSeesAllBlocks) {
  int64_t images = 0;
  const DetectorEvaluation with =
      evaluate(4, [&](const data::DetectionBatch& batch, const DetectorOutput& output) {
        EXPECT_EQ(output.slots, (std::vector<int64_t>{0, 1, 3}));
        EXPECT_EQ(output.blocks, 2);
        EXPECT_EQ(output.queries, 5);
        EXPECT_EQ(output.classes, 3);
        EXPECT_EQ(batch.count, 4);
        const float* const last = output.boxes + 3 * 5 * 4;
        EXPECT_NE(output.boxes[0], last[0]);
        images += static_cast<int64_t>(output.slots.size());
      });
  EXPECT_EQ(images, 3);
  const DetectorEvaluation without = evaluate(4);
  ASSERT_EQ(with.detections.size(), without.detections.size());
  for (size_t i = 0; i < with.detections.size(); ++i) {
    EXPECT_EQ(with.detections[i].score, without.detections[i].score);
  }
}

TEST_F(EvaluateDetector, Mistakes) {
  data::DetectionLoader loader(dataset_, preprocess_, std::nullopt, in_order(2));
  testing::expect_complaint(
      [&] {
        evaluate_detector(model_, loader, *dataset_, {3, 7}, context_);
      },
      {"3 classes", "2"});
}

TEST(EvaluateDetectorParts, SizesAndIds) {
  EXPECT_EQ(ids_of({{.id = 3, .name = "a"}, {.id = 9, .name = "b"}}), (std::vector<int64_t>{3, 9}));
  EXPECT_EQ(annotated_size({.id = 1, .file_name = "", .width = 20, .height = 10}, {5, 6}),
            (std::array<int64_t, 2>{10, 20}));
  EXPECT_EQ(annotated_size({.id = 1, .file_name = ""}, {5, 6}), (std::array<int64_t, 2>{5, 6}));
}

TEST(EvaluateAutoEncoder, IsWhatSingleImagesGive) {
  const engine::Model model = random_model(testing::small_auto_encoder(), kEvaluatedInfo);
  const auto dataset = noise(6, {2});
  engine::Context one(1), two(2);
  double l1 = 0, psnr = 0, ssim = 0;
  for (const int64_t i : {0, 1, 3, 4, 5}) {
    const Reconstructed single =
        reconstruct(model, dataset->read(i, 3), kEvaluatedInfo.preprocess, one);
    l1 += single.l1;
    psnr += single.psnr;
    ssim += single.ssim;
  }
  std::vector<Metrics> all;
  for (engine::Context* context : {&one, &two}) {
    data::Loader loader(dataset, kEvaluatedInfo.preprocess, std::nullopt, {}, in_order(4));
    const Reconstruction result =
        evaluate_auto_encoder(model, loader, kEvaluatedInfo.preprocess, *context);
    EXPECT_EQ(result.images, 5);
    EXPECT_NEAR(result.l1, l1 / 5, 1e-9);
    EXPECT_NEAR(result.psnr, psnr / 5, 1e-6);
    EXPECT_NEAR(result.ssim.all, ssim / 5, 1e-9);
    all.push_back(metrics_of(result));
  }
  EXPECT_EQ(all[0], all[1]);  // to the bit, for every number of threads
  // Two layers with factor 2: a grid of 2 pixels is possible, one of 4 is the code itself.
  ASSERT_EQ(all[0].size(), 5u);
  EXPECT_EQ(all[0][0].first, "L1");
  EXPECT_EQ(all[0][4].first, "grid2");
  EXPECT_GT(all[0][4].second, 0);
}

}  // namespace
}  // namespace qna::predict
