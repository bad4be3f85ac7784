#include "qna/coco/annotations.h"

#include <gtest/gtest.h>

#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::coco {
namespace {

using testing::complaint;
using testing::contains;

const char kText[] = R"({
  "info": {"description": [1, {"images": [{"id": "no"}]}]},
  "annotations": [
    {"id": 4, "image_id": 20, "category_id": 90, "bbox": [1, 2.5, 3, 4e0], "area": 6, "iscrowd": 1,
     "segmentation": {"counts": [1, 2], "size": [5, 5], "bbox": [1], "id": 17}},
    {"bbox": [-1, 0, 3, 4], "segmentation": [[1, 2, 3, 4, 5, 6]], "image_id": 10.0,
     "category_id": 1, "id": 3, "iscrowd": false, "ignore": 1, "attributes": null}],
  "images": [{"id": 20, "file_name": "b.jpg", "width": 640, "height": 480, "license": 3},
             {"id": 10}],
  "categories": [{"id": 90, "name": "toothbrush", "supercategory": "indoor"},
                 {"id": 1, "name": "person"}]
})";

TEST(Annotations, Reads) {
  const Annotations all = parse_annotations(kText, "gt.json");
  ASSERT_EQ(all.images.size(), 2u);
  EXPECT_EQ(all.images[0].id, 10);
  EXPECT_EQ(all.images[0].width, 0);
  EXPECT_EQ(all.images[1].file_name, "b.jpg");
  EXPECT_EQ(all.images[1].width, 640);
  EXPECT_EQ(all.images[1].height, 480);
  ASSERT_EQ(all.categories.size(), 2u);
  EXPECT_EQ(all.categories[0].name, "person");
  EXPECT_EQ(all.categories[1].id, 90);
  ASSERT_EQ(all.annotations.size(), 2u);
  const Annotation& first = all.annotations[0];
  EXPECT_EQ(first.id, 4);
  EXPECT_EQ(first.image, 1);
  EXPECT_EQ(first.category, 1);
  EXPECT_EQ(first.box, (Box{1, 2.5, 3, 4}));
  EXPECT_EQ(first.area, 6);
  EXPECT_TRUE(first.crowd);
  EXPECT_FALSE(first.ignore);
  const Annotation& second = all.annotations[1];
  EXPECT_EQ(second.image, 0);
  EXPECT_EQ(second.box, (Box{-1, 0, 3, 4}));
  EXPECT_EQ(second.area, 12);
  EXPECT_FALSE(second.crowd);
  EXPECT_TRUE(second.ignore);
  EXPECT_EQ(all.find_image(20), 1);
  EXPECT_EQ(all.find_image(15), std::nullopt);
  EXPECT_EQ(all.find_category(100), std::nullopt);
}

TEST(Annotations, ReadsTheCocoFile) {
  const Annotations all = read_annotations(QNA_TESTS_DIR "/coco/val2014_100_gt.json");
  EXPECT_EQ(all.images.size(), 100u);
  EXPECT_EQ(all.categories.size(), 80u);
  EXPECT_EQ(all.annotations.size(), 839u);
  EXPECT_EQ(std::count_if(all.annotations.begin(), all.annotations.end(),
                          [](const Annotation& a) { return a.crowd; }),
            9);
  EXPECT_TRUE(contains(complaint([] { read_annotations("/nonexistent.json"); }),
                       "cannot read /nonexistent.json"));
}

TEST(Annotations, WrittenAndReadAgain) {
  const qna::testing::TemporaryFolder folder;
  const Annotations all = read_annotations(QNA_TESTS_DIR "/coco/val2014_100_gt.json");
  write_annotations(folder.path("again.json"), all);
  const Annotations again = read_annotations(folder.path("again.json"));
  ASSERT_EQ(again.annotations.size(), all.annotations.size());
  for (size_t i = 0; i < all.annotations.size(); ++i) {
    const Annotation &a = all.annotations[i], &b = again.annotations[i];
    EXPECT_TRUE(a.id == b.id && a.image == b.image && a.category == b.category && a.box == b.box &&
                a.area == b.area && a.crowd == b.crowd && a.ignore == b.ignore)
        << i;
  }
  EXPECT_EQ(again.images.at(7).file_name, all.images.at(7).file_name);
  EXPECT_EQ(again.images.at(7).height, all.images.at(7).height);
  EXPECT_EQ(again.categories.at(79).name, all.categories.at(79).name);
}

TEST(Clip, KeepsWhatIsInTheImage) {
  EXPECT_EQ(clip({10, 10, 20, 20}, 100, 50), (Box{10, 10, 20, 20}));
  EXPECT_EQ(clip({-5, -5, 20, 20}, 100, 50), (Box{0, 0, 15, 15}));
  EXPECT_EQ(clip({90, 40, 20, 20}, 100, 50), (Box{90, 40, 10, 10}));
  EXPECT_EQ(clip({100, 0, 20, 20}, 100, 50), std::nullopt);
  EXPECT_EQ(clip({-20, 0, 20, 20}, 100, 50), std::nullopt);
  EXPECT_EQ(clip({10, 10, 0, 20}, 100, 50), std::nullopt);
}

}  // namespace
}  // namespace qna::coco
