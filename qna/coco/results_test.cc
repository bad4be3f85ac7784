#include "qna/coco/results.h"

#include <gtest/gtest.h>

#include <limits>

#include "qna/coco/random_case_testonly.h"
#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::coco {
namespace {

using qna::testing::complaint;
using qna::testing::TemporaryFolder;

Annotations one_image() {
  Annotations truth;
  truth.images = {{.id = 1, .file_name = "", .width = 0, .height = 0}};
  return truth;
}

TEST(Results, Reads) {
  const auto detections = parse_results(
      R"([{"image_id": 1, "category_id": 5, "bbox": [0, 1, 2.5, 3], "score": 0.25, "id": "x"},
          {"segmentation": [[1, 2]], "score": -3, "bbox": [0, 0, 0, 0], "category_id": 77,
           "image_id": 1}])",
      "dt.json", one_image());
  ASSERT_EQ(detections.size(), 2u);
  EXPECT_EQ(detections[0].category_id, 5);
  EXPECT_EQ(detections[0].box, (Box{0, 1, 2.5, 3}));
  EXPECT_EQ(detections[0].score, 0.25);
  EXPECT_EQ(detections[1].score, -3);
  EXPECT_TRUE(parse_results("[]", "dt.json", one_image()).empty());
}

TEST(Results, WhatIsWrittenReadsTheSame) {
  const TemporaryFolder folder;
  const std::string path = folder.path("results.json");
  testing::Case one = testing::random_case(4);
  one.detections[0].score = 0.1 + 0.2;
  one.detections[1].box = {-1.0 / 3, 1e-300, 1e300, 5e-324};
  for (const size_t count : {size_t{0}, size_t{1}, one.detections.size()}) {
    const std::span<const Detection> some = std::span(one.detections).first(count);
    write_results(path, some);
    const auto read = read_results(path, one.truth);
    ASSERT_EQ(read.size(), count);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(read[i].image_id, some[i].image_id);
      EXPECT_EQ(read[i].category_id, some[i].category_id);
      EXPECT_EQ(read[i].box, some[i].box);
      EXPECT_EQ(read[i].score, some[i].score);
    }
  }
}

TEST(Results, ManyAreWrittenPieceByPiece) {
  const TemporaryFolder folder;
  const std::string path = folder.path("results.json");
  std::vector<Detection> many(40'000, {.image_id = 1, .category_id = 2, .box = {1, 2, 3, 4}});
  many.back().score = 9;
  write_results(path, many);
  const auto read = read_results(path, one_image());
  ASSERT_EQ(read.size(), many.size());
  EXPECT_EQ(read.back().score, 9);
}

TEST(Results, ThatAreNotFiniteAreNotWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.path("results.json");
  const std::vector<Detection> bad = {
      {.image_id = 1, .category_id = 2, .box = {0, 0, std::numeric_limits<double>::infinity(), 1}}};
  EXPECT_EQ(complaint([&] { write_results(path, bad); }),
            path + ": detection 0 must hold finite numbers, got [0, 0, inf, 1], score 0");
  EXPECT_TRUE(std::filesystem::is_empty(folder.folder()));
}

}  // namespace
}  // namespace qna::coco
