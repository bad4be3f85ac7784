// What is found in folders of every layout, and in folders where something is wrong.
#include "qna/finetune/survey.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "qna/coco/annotations.h"
#include "qna/finetune/hold_back_boxes.h"
#include "qna/finetune/remarks.h"
#include "qna/image/write_png.h"
#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::finetune {
namespace {

using nlohmann::json;
using qna::testing::contains;
using qna::testing::expect_complaint;
namespace fs = std::filesystem;

class SurveyTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name = "") const { return folder_.path(name); }

  void write(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
  }

  // Every picture another, unless the shades are equal.
  void picture(const std::string& name, int64_t height = 40, int64_t width = 50) {
    picture_of_shade(name, ++shade_, height, width);
  }
  void picture_of_shade(const std::string& name, int shade, int64_t height = 40,
                        int64_t width = 50) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    image::Image image = image::make_image(height, width, 3);
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      image.pixels[i] = static_cast<uint8_t>(shade * (7 + static_cast<int>(i % 11)));
    }
    image::write_png(path(name), image);
  }

  void class_folder(const std::string& name, int count) {
    for (int i = 0; i < count; ++i) picture(name + "/" + std::to_string(i) + ".png");
  }

  // A COCO file of such pictures with a box each.
  void coco_file(const std::string& name, const std::vector<std::string>& pictures) const {
    json truth = {{"images", json::array()},
                  {"annotations", json::array()},
                  {"categories", {{{"id", 1}, {"name", "cell"}}, {{"id", 4}, {"name", "dust"}}}}};
    for (const std::string& picture : pictures) {
      const size_t id = truth["images"].size() + 1;
      truth["images"].push_back(
          {{"id", id}, {"file_name", picture}, {"width", 50}, {"height", 40}});
      truth["annotations"].push_back(
          {{"id", id}, {"image_id", id}, {"category_id", 1}, {"bbox", {5, 5, 10, 10}}});
    }
    write(name, truth.dump());
  }

  std::string xml(const std::string& picture, const std::string& name) const {
    return "<annotation><filename>" + picture +
           "</filename><size><width>50</width><height>40</height><depth>3</depth></size><object>"
           "<name>" +
           name +
           "</name><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>20</xmax><ymax>20</ymax></bndbox>"
           "</object></annotation>";
  }

  qna::testing::TemporaryFolder folder_;
  int shade_ = 0;
};

// ---- one label per picture ----

TEST_F(SurveyTest, ClassFolders) {
  class_folder("set/cat", 30);
  class_folder("set/dog", 20);
  const Survey s = survey(path("set"));
  EXPECT_EQ(s.kind, config::Kind::kClassifier);
  EXPECT_EQ(s.layout, "class folders");
  EXPECT_EQ(s.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(s.train.per_class, (std::vector<int64_t>{30, 20}));
  EXPECT_FALSE(s.val.has_value());
  EXPECT_EQ(s.data["val_fraction"], 0.15);
  EXPECT_EQ(s.val_images(), 8);
  EXPECT_EQ(s.train_images(), 42);
  EXPECT_EQ(s.facts.opened, 50);
  EXPECT_EQ(s.facts.median, 40);
  EXPECT_TRUE(warnings(s).empty());
}

TEST_F(SurveyTest, Splits) {
  for (const char* name : {"val", "valid", "validation", "test"}) {
    const std::string set = std::string("of_") + name;
    for (const char* label : {"/a", "/b"}) {
      class_folder(set + "/train" + label, 6);
      class_folder(set + "/" + name + label, 2);
    }
    const Survey s = survey(path(set));
    ASSERT_TRUE(s.val.has_value()) << name;
    EXPECT_EQ(s.val->images, 4);
    EXPECT_EQ(s.train_images(), 12);
    EXPECT_FALSE(s.data.contains("val_fraction"));
  }
  EXPECT_EQ(survey(path("of_valid")).data["val"], "valid");
}

TEST_F(SurveyTest, OnlyATrainSplit) {
  class_folder("set/train/a", 6);
  class_folder("set/train/b", 6);
  const Survey s = survey(path("set"));
  EXPECT_EQ(s.classes.size(), 2u);
  EXPECT_EQ(s.data["val_fraction"], 0.3);  // so few that 0.15 would leave hardly any
}

TEST_F(SurveyTest, AFolderInAFolder) {
  class_folder("download/flowers/a", 5);
  class_folder("download/flowers/b", 5);
  write("download/.DS_Store", "x");
  EXPECT_EQ(survey(path("download")).path, path("download/flowers"));
}

TEST_F(SurveyTest, IdxFiles) {
  const auto number = [](int value) {
    return std::string{'\0', '\0', '\0', static_cast<char>(value)};
  };
  const std::string labels = {0, 1, 0, 1};
  write("idx/train-images-idx3-ubyte", std::string{'\0', '\0', '\x08', '\x03'} + number(4) +
                                           number(2) + number(2) + std::string(16, 'x'));
  write("idx/train-labels-idx1-ubyte",
        std::string{'\0', '\0', '\x08', '\x01'} + number(4) + labels);
  const Survey s = survey(path("idx"));
  EXPECT_EQ(s.layout, "idx files");
  EXPECT_EQ(s.train.per_class, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(s.facts.median, 2);
}

TEST_F(SurveyTest, WhatIsWrongIsTold) {
  class_folder("set/train/many", 60);
  class_folder("set/train/few", 3);
  class_folder("set/val/many", 4);
  class_folder("set/val/few", 2);
  picture_of_shade("set/train/many/same.png", 200);
  picture_of_shade("set/val/few/again.png", 200);
  write("set/train/many/broken.png", "\x89PNG no more");
  write("set/train/many/moving.gif", "GIF89a");
  const Survey s = survey(path("set"));
  ASSERT_EQ(s.facts.broken.size(), 1u);
  EXPECT_TRUE(contains(s.facts.broken[0], "broken.png"));
  EXPECT_TRUE(contains(s.left_out, "GIF"));
  EXPECT_EQ(s.duplicates.count, 1);
  EXPECT_EQ(s.data["broken"], "skip");
  std::string all;
  for (const std::string& line : warnings(s)) all += line + "\n";
  EXPECT_TRUE(contains(all, "1 class has fewer than 5 pictures, such as 'few' with 3")) << all;
  EXPECT_TRUE(contains(all, "'many' has 62 pictures and 'few' 3")) << all;
  EXPECT_TRUE(contains(all, "in train and in val")) << all;
  EXPECT_TRUE(contains(all, "7 pictures to measure on")) << all;
  std::string table;
  for (const std::string& line : describe(s)) table += line + "\n";
  EXPECT_TRUE(contains(table, "broken   1 of the 65")) << table;
  EXPECT_TRUE(contains(table, "40 pixels")) << table;
}

TEST_F(SurveyTest, DuplicatesWithinASetWithoutSplits) {
  class_folder("set/a", 5);
  class_folder("set/b", 5);
  picture_of_shade("set/a/x.png", 99);
  picture_of_shade("set/b/y.png", 99);
  const Survey s = survey(path("set"));
  EXPECT_EQ(s.duplicates.count, 1);
  EXPECT_TRUE(contains(warnings(s).at(0), "1 picture is there twice"));
}

TEST_F(SurveyTest, ManyClassesAreShownInPart) {
  for (int i = 0; i < 30; ++i) class_folder("set/c" + std::to_string(i), 1);
  const std::vector<std::string> lines = describe(survey(path("set")));
  EXPECT_LT(lines.size(), 20u);
  EXPECT_TRUE(std::ranges::any_of(
      lines, [](const std::string& line) { return contains(line, "... 18 more"); }));
}

TEST_F(SurveyTest, Refused) {
  expect_complaint([&] { survey(path("sett")); }, {"sett", "no such file"});
  fs::create_directories(path("empty"));
  expect_complaint([&] { survey(path("empty")); }, {"empty", "one folder per class"});
  class_folder("one/a", 3);
  expect_complaint([&] { survey(path("one")); }, {"one class", "'a'", "at least two"});
  class_folder("hollow/a", 3);
  fs::create_directories(path("hollow/b"));
  expect_complaint([&] { survey(path("hollow")); }, {"'b'", "no picture"});
  class_folder("other/train/a", 3);
  class_folder("other/train/b", 3);
  class_folder("other/val/a", 3);
  class_folder("other/val/c", 3);
  expect_complaint([&] { survey(path("other")); }, {"only in 'train': b", "only in 'val': c"});
  write("dead/a/x.png", "no picture");
  write("dead/b/y.png", "no picture");
  expect_complaint([&] { survey(path("dead")); }, {"none of the 2 pictures"});
  write("notes.txt", "hello");
  expect_complaint([&] { survey(path("notes.txt")); }, {"notes.txt"});
}

// ---- boxes ----

TEST_F(SurveyTest, CocoLayouts) {
  const auto expect_found = [&](const std::string& set, bool has_val) {
    const Survey s = survey(path(set));
    EXPECT_EQ(s.kind, config::Kind::kDetector) << set;
    EXPECT_EQ(s.layout, "COCO's JSON") << set;
    EXPECT_EQ(s.classes, (std::vector<std::string>{"cell", "dust"})) << set;
    EXPECT_EQ(s.train.objects, 2) << set;
    EXPECT_EQ(s.val.has_value(), has_val) << set;
    EXPECT_TRUE(fs::exists(s.data["train"].get<std::string>())) << set;
  };
  for (const char* name : {"0.png", "1.png"}) {
    for (const char* place :
         {"a/images/", "b/train2017/", "b/val2017/", "c/train/", "c/valid/", "d/"}) {
      picture(std::string(place) + name);
    }
  }
  coco_file("a/annotations/instances_train.json", {"0.png"});
  coco_file("a/annotations/instances_train.json", {"0.png", "1.png"});
  coco_file("a/annotations/instances_val.json", {"1.png"});
  expect_found("a", true);
  coco_file("b/annotations/instances_train2017.json", {"0.png", "1.png"});
  coco_file("b/annotations/instances_val2017.json", {"0.png"});
  write("b/annotations/captions_train2017.json", R"({"images": [], "annotations": []})");
  expect_found("b", true);
  coco_file("c/train/_annotations.coco.json", {"0.png", "1.png"});
  coco_file("c/valid/_annotations.coco.json", {"0.png", "1.png"});
  expect_found("c", true);
  coco_file("d/boxes.json", {"0.png", "1.png"});
  expect_found("d", false);
}

TEST_F(SurveyTest, YoloLayouts) {
  const auto add = [&](const std::string& images, const std::string& labels) {
    for (const char* name : {"0", "1"}) {
      picture(images + "/" + name + ".png");
      write(labels + "/" + name + ".txt", "0 0.5 0.5 0.2 0.2\n1 0.3 0.3 0.1 0.1\n");
    }
  };
  add("a/train/images", "a/train/labels");
  add("a/valid/images", "a/valid/labels");
  write("a/data.yaml", "train: ../train/images\nval: ../valid/images\nnames: ['cell', 'dust']\n");
  add("b/images/train", "b/labels/train");
  add("b/images/val", "b/labels/val");
  write("b/classes.txt", "cell\ndust\n");
  add("c/images", "c/labels");
  write("c/classes.txt", "cell\ndust\n");
  add("d", "d");
  write("d/classes.txt", "cell\ndust\n");
  for (const char* set : {"a", "b", "c", "d"}) {
    const Survey s = survey(path(set));
    EXPECT_EQ(s.layout, "YOLO's labels") << set;
    EXPECT_EQ(s.train.objects, 4) << set;
    EXPECT_EQ(s.train.most_objects, 2) << set;
    EXPECT_EQ(s.val.has_value(), set[0] < 'c') << set;
  }
  fs::remove_all(path("a/train"));
  expect_complaint([&] { survey(path("a")); }, {"data.yaml", "'train'"});
}

TEST_F(SurveyTest, VocLayouts) {
  for (const char* name : {"0", "1", "2"}) {
    const std::string file = std::string(name) + ".png";
    picture("a/JPEGImages/" + file);
    write("a/Annotations/" + std::string(name) + ".xml",
          xml(file, name[0] == '2' ? "dust" : "cell"));
    picture("b/" + file);
    write("b/" + std::string(name) + ".xml", xml(file, "cell"));
  }
  write("a/ImageSets/Main/train.txt", "0\n1\n");
  write("a/ImageSets/Main/val.txt", "2\n");
  const Survey a = survey(path("a"));
  EXPECT_EQ(a.layout, "VOC's XML");
  EXPECT_EQ(a.classes, (std::vector<std::string>{"cell", "dust"}));  // one of them only in val
  EXPECT_EQ(a.val->objects, 1);
  const Survey b = survey(path("b"));
  EXPECT_EQ(b.train.objects, 3);
  EXPECT_FALSE(b.val.has_value());
}

TEST_F(SurveyTest, BoxesThatAreBroken) {
  picture("a/0.png");
  write("a/boxes.json", R"({"images": [{"id": 1}], "annotations": 3, "categories": []})");
  expect_complaint([&] { survey(path("a")); }, {"boxes.json"});
  coco_file("b/boxes.json", {"elsewhere.png"});
  expect_complaint([&] { survey(path("b")); }, {"elsewhere.png", "none of the folders"});
  picture("c/0.png");
  coco_file("c/one.json", {"0.png"});
  coco_file("c/two.json", {"0.png"});
  expect_complaint([&] { survey(path("c")); }, {"none is called 'train'", "one.json"});
  // A file of another kind among class folders does no harm.
  class_folder("d/a", 3);
  class_folder("d/b", 3);
  write("d/about.json", R"({"licence": "none"})");
  EXPECT_EQ(survey(path("d")).kind, config::Kind::kClassifier);
}

TEST_F(SurveyTest, BoxesAreHeldBack) {
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) {
    names.push_back(std::to_string(i) + ".png");
    picture("set/" + names.back());
  }
  coco_file("set/boxes.json", names);
  const Survey s = survey(path("set"));
  json data = s.data;
  split_boxes(s, data, path("run"));
  const auto train = coco::read_annotations(path("run/train.json"));
  const auto val = coco::read_annotations(path("run/val.json"));
  EXPECT_EQ(static_cast<int64_t>(val.images.size()), s.val_images());
  EXPECT_EQ(train.images.size() + val.images.size(), 20u);
  EXPECT_EQ(train.annotations.size() + val.annotations.size(), 20u);
  EXPECT_EQ(val.categories.size(), 2u);
  for (const coco::Image& image : val.images) EXPECT_FALSE(train.find_image(image.id).has_value());
  EXPECT_EQ(data["val"], path("run/val.json"));
  EXPECT_EQ(val.annotations.at(0).box, (coco::Box{5, 5, 10, 10}));
  const HeldBackBoxes two = hold_back_boxes(train, 0.001, 1);
  EXPECT_EQ(two.val.images.size(), 1u);  // at least
}

}  // namespace
}  // namespace qna::finetune
