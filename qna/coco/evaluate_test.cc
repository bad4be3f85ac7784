// Against pycocotools 2.0.11. The tolerance of 1e-9 is for sums in another order; single values are
// the same to the bit, or they would be off by a whole detection.
#include "qna/coco/evaluate.h"

#include <gtest/gtest.h>

#include "qna/coco/match.h"
#include "qna/coco/random_case_testonly.h"
#include "qna/coco/summary.h"
#include "qna/format/fields.h"
#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::coco {
namespace {

using nlohmann::json;
using qna::testing::complaint;
using testing::Case;
using testing::random_case;

const std::string kFolder = QNA_TESTS_DIR "/coco/";

const json& golden() {
  static const json all =
      format::parse_json(qna::testing::content_of(kFolder + "golden.json"), "golden.json");
  return all;
}

Evaluation evaluate(const Case& one, int workers = 1) {
  ThreadRuntime runtime(workers);
  return coco::evaluate(one.truth, one.detections, runtime);
}

// Weights from 1 to 13 by the place, so that a value in the wrong place shows.
double checksum(const std::vector<double>& values) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += values[i] * static_cast<double>(i % 13 + 1);
  return sum;
}

void expect_golden(const Evaluation& evaluation, const json& expected) {
  const auto numbers = summarize(evaluation);
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_NEAR(numbers[i], expected["numbers"][i].get<double>(), 1e-9) << kMeasures[i].name;
  }
  ASSERT_EQ(static_cast<size_t>(evaluation.categories), expected["categories"].size());
  for (int64_t c = 0; c < evaluation.categories; ++c) {
    EXPECT_NEAR(mean(evaluation, kMeasures[0], c), expected["categories"][c].get<double>(), 1e-9);
  }
  // Sums of up to 323,200 values of up to 13.
  EXPECT_NEAR(checksum(evaluation.precision), expected["precision"].get<double>(), 1e-6);
  EXPECT_NEAR(checksum(evaluation.scores), expected["scores"].get<double>(), 1e-6);
  EXPECT_NEAR(checksum(evaluation.recall), expected["recall"].get<double>(), 1e-6);
}

Case read_case(const std::string& truth, const std::string& detections) {
  Case out{read_annotations(kFolder + truth), {}};
  out.detections = read_results(kFolder + detections, out.truth);
  return out;
}

TEST(Evaluate, FilesAgainstPycocotools) {
  expect_golden(evaluate(read_case("small_gt.json", "small_dt.json")), golden()["small"]);
  expect_golden(evaluate(read_case("val2014_100_gt.json", "val2014_100_fakebbox_results.json")),
                golden()["val2014_100"]);
}

TEST(Evaluate, RandomCasesAgainstPycocotools) {
  const json& all = golden()["random"];
  ASSERT_GE(all.size(), 30u);
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    expect_golden(evaluate(random_case(static_cast<int>(i))), all[i]);
  }
}

TEST(Evaluate, DoesNotDependOnWorkers) {
  for (int i = 0; i < 40; i += 3) {
    const Evaluation one = evaluate(random_case(i), 1);
    const Evaluation many = evaluate(random_case(i), 5);
    EXPECT_EQ(one.precision, many.precision);
    EXPECT_EQ(one.scores, many.scores);
    EXPECT_EQ(one.recall, many.recall);
  }
}

// numpy.linspace(.5, .95, 10) and (0, 1, 101): those that differ from the nearest decimal too.
TEST(Evaluate, ThresholdsAreThoseOfNumpy) {
  EXPECT_EQ(kIouThresholds[0], 0.5);
  EXPECT_EQ(kIouThresholds[5], 0.75);
  EXPECT_EQ(kIouThresholds[9], 0.95);
  for (int i = 0; i < kThresholds; ++i) EXPECT_NEAR(kIouThresholds[i], 0.5 + 0.05 * i, 1e-15);
  EXPECT_EQ(kRecallLevels[29], 0.29);
  EXPECT_EQ(kRecallLevels[35], 0.35000000000000003);
  EXPECT_EQ(kRecallLevels[100], 1);
}

// One image with one object of 10 x 10 in each of two categories.
Case two_objects() {
  Case out;
  out.truth.images = {{.id = 7, .file_name = "a.jpg", .width = 100, .height = 100}};
  out.truth.categories = {{.id = 2, .name = "cat"}, {.id = 9, .name = "dog"}};
  out.truth.annotations = {
      {.id = 1, .image = 0, .category = 0, .box = {0, 0, 10, 10}, .area = 100},
      {.id = 2, .image = 0, .category = 1, .box = {50, 50, 10, 10}, .area = 100}};
  return out;
}

TEST(Evaluate, NothingFound) {
  const Evaluation evaluation = evaluate(two_objects());
  EXPECT_EQ(mean(evaluation, kMeasures[0]), 0);   // AP
  EXPECT_EQ(mean(evaluation, kMeasures[8]), 0);   // AR100
  EXPECT_EQ(mean(evaluation, kMeasures[5]), -1);  // APl: there is no large object
}

TEST(Evaluate, EmptyGroundTruth) {
  const auto numbers = summarize(evaluate(Case{}));
  for (const double number : numbers) EXPECT_EQ(number, -1);
}

TEST(Evaluate, OneCategoryFound) {
  Case one = two_objects();
  one.detections = {{.image_id = 7, .category_id = 9, .box = {50, 50, 10, 10}, .score = 0.5}};
  const Evaluation evaluation = evaluate(one);
  EXPECT_EQ(mean(evaluation, kMeasures[0], 0), 0);
  EXPECT_NEAR(mean(evaluation, kMeasures[0], 1), 1, 1e-12);
  EXPECT_NEAR(mean(evaluation, kMeasures[0]), 0.5, 1e-12);
  EXPECT_EQ(evaluation.recall_at(1, Area::kSmall, 9, 0), 1);
  EXPECT_EQ(evaluation.scores_at(1, Area::kAll, 0)[100], 0.5);
  EXPECT_NEAR(mean_curve(evaluation, 0)[50], 0.5, 1e-12);
}

TEST(Evaluate, UnknownImageOrNumber) {
  Case one = two_objects();
  one.detections = {{.image_id = 8, .category_id = 9, .box = {0, 0, 1, 1}, .score = 0.5}};
  EXPECT_EQ(complaint([&] { evaluate(one); }),
            "evaluate: detection 0: the ground truth has no picture of id 8");
  one.detections[0].image_id = 7;
  one.detections[0].score = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(complaint([&] { evaluate(one); }),
            "evaluate: detection 0 must hold finite numbers, got [0, 0, 1, 1], score nan");
}

TEST(Overlap, Boxes) {
  const Box box{0, 0, 10, 10};
  EXPECT_EQ(overlap(box, box, false), 1);
  EXPECT_EQ(overlap(box, {5, 0, 10, 10}, false), 50.0 / 150);
  EXPECT_EQ(overlap(box, {5, 0, 10, 10}, true), 0.5);
  EXPECT_EQ(overlap(box, {10, 0, 10, 10}, false), 0);  // they touch
  EXPECT_EQ(overlap({3, 3, 0, 0}, box, true), 0);
}

}  // namespace
}  // namespace qna::coco
