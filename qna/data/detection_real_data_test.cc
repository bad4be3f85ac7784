// On data sets that are too large to be part of this repository: the folder QNA_TEST_DATA has bccd
// (BCCD: VOC files and a COCO file made of them) and coco-mini (images of COCO 2017, made smaller
// than they are annotated). Skipped where it is missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "qna/coco/voc.h"
#include "qna/data/detection_loader.h"

namespace qna::data {
namespace {

// Empty: it is not there.
std::string real_data(const std::string& name) {
  const char* folder = std::getenv("QNA_TEST_DATA");
  if (folder == nullptr) return "";
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  return std::filesystem::is_directory(path) ? path.string() : "";
}

#define QNA_REQUIRE_DATA(variable, name)        \
  const std::string variable = real_data(name); \
  if (variable.empty()) GTEST_SKIP() << "QNA_TEST_DATA must name a folder that has " << (name)

TEST(RealData, BccdAsVoc) {
  QNA_REQUIRE_DATA(folder, "bccd");
  const DetectionDataset dataset(
      {.images = folder + "/images", .annotations = folder + "/annotations-voc"});
  EXPECT_EQ(dataset.size(), 364);
  EXPECT_EQ(dataset.classes(), (std::vector<std::string>{"Platelets", "RBC", "WBC"}));
  EXPECT_EQ(dataset.truth().annotations.size(), 4886u);
  EXPECT_EQ(dataset.points().size(), 2u);
  int64_t objects = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    objects += static_cast<int64_t>(dataset.objects(i, 480, 640).size());
  }
  EXPECT_EQ(objects, 4886);
}

// The COCO files take xmin for the left edge, VOC's own definition xmin - 1.
TEST(RealData, BccdIsTheSameInBothFormats) {
  QNA_REQUIRE_DATA(folder, "bccd");
  const DetectionDataset voc(
      {.images = folder + "/images", .annotations = folder + "/annotations-voc"});
  const DetectionDataset coco({.images = folder + "/images",
                               .annotations = folder + "/annotations/instances_val.json",
                               .class_names = voc.classes()});
  EXPECT_EQ(coco.size(), 87);
  for (int64_t i = 0; i < coco.size(); ++i) {
    int64_t same = 0;
    while (same < voc.size() && voc.name(same) != coco.name(i)) ++same;
    ASSERT_LT(same, voc.size());
    const auto expected = voc.objects(same, 480, 640);
    const auto objects = coco.objects(i, 480, 640);
    ASSERT_EQ(objects.size(), expected.size()) << coco.name(i);
    for (size_t j = 0; j < objects.size(); ++j) {
      EXPECT_EQ(objects[j].label, expected[j].label);
      for (size_t k = 0; k < 4; ++k) {
        EXPECT_NEAR(objects[j].box[k], expected[j].box[k], 1) << coco.name(i);
      }
    }
  }
}

TEST(RealData, CocoWhoseImagesAreSmallerThanAnnotated) {
  QNA_REQUIRE_DATA(folder, "coco-mini");
  const auto dataset = std::make_shared<const DetectionDataset>(
      DetectionDatasetOptions{.images = folder + "/val",
                              .annotations = folder + "/annotations/instances_val.json",
                              .limit = 40});
  EXPECT_EQ(dataset->size(), 40);
  EXPECT_EQ(dataset->classes().size(), 71u);
  const Preprocess fitted{.resize = 128, .longest = 200, .crop = {0, 0}};
  const DetectionAugment augment{.shorter = {96, 128, 160},
                                 .longest = 224,
                                 .crop_shorter = {100, 140},
                                 .crop_size = {80, 140}};
  for (const bool training : {true, false}) {
    DetectionLoader loader(dataset, fitted, training ? std::optional(augment) : std::nullopt,
                           {.batch = 8});
    loader.start(0);
    int64_t objects = 0;
    while (const std::optional<DetectionBatch> batch = loader.next()) {
      for (int64_t i = 0; i < batch->count; ++i) {
        const auto [height, width] = batch->sizes[i];
        EXPECT_LE(std::max(batch->originals[i][0], batch->originals[i][1]), 320);
        EXPECT_LE(std::max(height, width), 226);
        for (const LabelledBox& object : batch->objects[i]) {
          ++objects;
          EXPECT_GE(std::min(object.box[0], object.box[1]), 0);
          EXPECT_LE(object.box[2], static_cast<double>(width));
          EXPECT_LE(object.box[3], static_cast<double>(height));
          EXPECT_GT(object.area(), 0);
        }
      }
    }
    EXPECT_GT(objects, 100);
  }
}

}  // namespace
}  // namespace qna::data
