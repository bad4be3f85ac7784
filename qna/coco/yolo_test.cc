#include "qna/coco/yolo.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::coco {
namespace {

using qna::testing::complaint;
using Names = std::vector<std::string>;

std::string said_of_labels(const std::string& text) {
  return complaint([&] { parse_yolo(text, "a.txt"); });
}
std::string said_of_yaml(const std::string& text) {
  return complaint([&] { parse_yolo_description(text, "data.yaml"); });
}

TEST(Yolo, BoxesAndOutlines) {
  const auto objects = parse_yolo(
      "2 0.5 0.25 0.5 0.125\r\n\n 0\t0 0 0.25 0.5 \n1 0.1 0.2 0.5 0.3 0.3 0.75\n", "a.txt");
  ASSERT_EQ(objects.size(), 3u);
  EXPECT_EQ(objects[0].category, 2);
  EXPECT_EQ(objects[0].box, (Box{0.25, 0.1875, 0.5, 0.125}));
  EXPECT_EQ(objects[1].box, (Box{-0.125, -0.25, 0.25, 0.5}));
  EXPECT_EQ(objects[2].category, 1);
  EXPECT_EQ(objects[2].box, (Box{0.1, 0.2, 0.4, 0.55}));
  EXPECT_TRUE(parse_yolo("", "a.txt").empty());
}

TEST(Yolo, ErrorsNameFileLineRuleAndValue) {
  EXPECT_EQ(said_of_labels("0 0.5 0.5 0.1 0.1\n0 0.5 0.5 0.1"),
            "a.txt: line 2 must have 5 numbers (class, middle x, middle y, width, height), or a "
            "class and at least 3 corners, got 4 numbers");
  EXPECT_EQ(said_of_labels("cat 0.5 0.5 0.1 0.1"),
            "a.txt: line 1 must have numbers only, got 'cat'");
  EXPECT_EQ(said_of_labels("0 nan 0.5 0.1 0.1"), "a.txt: line 1 must have numbers only, got 'nan'");
  EXPECT_EQ(said_of_labels("-1 0.5 0.5 0.1 0.1"),
            "a.txt: line 1: the class must be a whole number from 0, got -1");
  EXPECT_EQ(said_of_labels("0.5 0.5 0.5 0.1 0.1"),
            "a.txt: line 1: the class must be a whole number from 0, got 0.5");
  EXPECT_EQ(
      said_of_labels("0 320 240 50 60"),
      "a.txt: line 1: places and sizes must be shares of the picture's sides, from 0 to 1, got "
      "320; pixels must be divided by its width and height");
  EXPECT_EQ(said_of_labels("0 0.5 0.5 -0.1 0.1"),
            "a.txt: line 1: the size must not be negative, got -0.1 x 0.1");
  EXPECT_EQ(said_of_labels("0 0.5 \xff"), "a.txt: must be UTF-8");
}

TEST(Yolo, DescriptionsAsToolsWriteThem) {
  const auto roboflow = parse_yolo_description(
      "train: ../train/images\nval: ../valid/images\n\nnc: 3\n"
      "names: ['red, dark', \"it's\", plain]  # three\nroboflow:\n  names: none\n",
      "data.yaml");
  EXPECT_EQ(roboflow.names, (Names{"red, dark", "it's", "plain"}));
  EXPECT_EQ(roboflow.train, "../train/images");
  EXPECT_EQ(roboflow.val, "../valid/images");
  const auto ultralytics = parse_yolo_description(
      "# COCO8\npath: datasets/coco8  # root\ntrain: images/train\nval: images/val\nnames:\n"
      "  0: person\n  1: traffic light\n  2: 'x: y'\ndownload: https://example.org/a.zip\n",
      "data.yaml");
  EXPECT_EQ(ultralytics.names, (Names{"person", "traffic light", "x: y"}));
  EXPECT_EQ(ultralytics.path, "datasets/coco8");
  EXPECT_EQ(parse_yolo_description("names:\n- a\n- b # c\nnc: 2\n", "d").names, (Names{"a", "b"}));
  EXPECT_EQ(parse_yolo_description("names: ['a', # one\n  'b',\n  c]\nnc: 3\n", "d").names,
            (Names{"a", "b", "c"}));
  EXPECT_EQ(parse_yolo_description("names: {0: a, 1: \"b, c\"}", "d").names, (Names{"a", "b, c"}));
}

TEST(Yolo, DescriptionsThatCannotBeMeant) {
  EXPECT_EQ(said_of_yaml("nc: 3\n"),
            "data.yaml: there are no names of classes in it (names: [...])");
  EXPECT_EQ(said_of_yaml("names: cat"), "data.yaml: line 1: names must be a list, got 'cat'");
  EXPECT_EQ(said_of_yaml("names: [a, b"),
            "data.yaml: line 1: the list of names has no end, ] is missing");
  EXPECT_EQ(said_of_yaml("names:\n  0: a\n  2: b"),
            "data.yaml: names must be numbered without gaps, number 1 is missing");
  EXPECT_EQ(said_of_yaml("names:\n  0: a\n  0: b"), "data.yaml: line 3: class 0 comes twice");
  EXPECT_EQ(said_of_yaml("names:\n  x: a"),
            "data.yaml: line 2: names must be numbered from 0, got 'x'");
  EXPECT_EQ(said_of_yaml("names:\n  what\n"),
            "data.yaml: line 2: must be '- name' or 'number: name', got 'what'");
}

TEST(Yolo, NamesAreFoundAboveTheLabels) {
  const qna::testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("set/labels/train"));
  const std::string labels = folder.path("set/labels/train");
  EXPECT_TRUE(find_yolo_names(labels).empty());
  EXPECT_FALSE(is_yolo_folder(labels));
  std::ofstream(folder.path("set/data.yaml")) << "names: [a, b]\n";
  EXPECT_EQ(find_yolo_names(labels), (Names{"a", "b"}));
  std::ofstream(labels + "/classes.txt") << "c\r\nd e\n\n";
  EXPECT_EQ(find_yolo_names(labels + "/"), (Names{"c", "d e"}));
  EXPECT_FALSE(is_yolo_folder(labels));  // no labels yet
  std::ofstream(labels + "/1.txt") << "";
  EXPECT_TRUE(is_yolo_folder(labels));
  EXPECT_EQ(yolo_labels_of("a/images/train/"), "a/labels/train");
  EXPECT_EQ(yolo_labels_of("images/valid/images"), "images/valid/labels");
  EXPECT_TRUE(qna::testing::contains(complaint([] { yolo_labels_of("a/b"); }), "'images'"));
}

}  // namespace
}  // namespace qna::coco
