#include "qna/coco/voc.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/complaint.h"
#include "tests/support/hostile.h"
#include "tests/support/temporary_folder.h"

namespace qna::coco {
namespace {

using qna::testing::complaint;
using qna::testing::contains;
using qna::testing::TemporaryFolder;

// `corners`: xmin, ymin, xmax and ymax with a space between.
std::string object(const std::string& name, const std::string& corners,
                   const std::string& more = "") {
  std::string box;
  size_t begin = 0;
  for (const char* tag : {"xmin", "ymin", "xmax", "ymax"}) {
    const size_t end = std::min(corners.find(' ', begin), corners.size());
    box += fmt::format("<{0}>{1}</{0}>", tag, corners.substr(begin, end - begin));
    begin = std::min(end + 1, corners.size());
  }
  return fmt::format("<object><name>{}</name>{}<bndbox>{}</bndbox></object>", name, more, box);
}

std::string file(const std::string& objects, const std::string& head =
                                                 "<filename>a.jpg</filename><size><width>40</width>"
                                                 "<height>30</height><depth>3</depth></size>") {
  return fmt::format("<annotation>{}{}</annotation>", head, objects);
}

std::string said_of(const std::string& text) {
  return complaint([&] { parse_voc(text, "f.xml"); });
}

TEST(Voc, PixelsCountFromOneAndBothEndsBelongToABox) {
  const VocImage image = parse_voc(
      "\xef\xbb\xbf<?xml version=\"1.0\"?>\n<!DOCTYPE x [<!ENTITY e \"boo\">]><!-- c -->\n" +
          file(object("cat", "1 1 40 30", "<truncated>1</truncated><pose>Left</pose>") +
               object(" dog\n", "\t5.5\n 6 5.5 9", "<difficult> 1 </difficult>") +
               object("a &lt; b", "-3 2 60 2",
                      "<part><name>head</name><bndbox><xmin>x</xmin></bndbox></part>")),
      "f.xml");
  EXPECT_EQ(image.file_name, "a.jpg");
  EXPECT_EQ(image.width, 40);
  EXPECT_EQ(image.height, 30);
  ASSERT_EQ(image.objects.size(), 3u);
  EXPECT_EQ(image.objects[0].category, "cat");
  EXPECT_EQ(image.objects[0].box, (Box{0, 0, 40, 30}));
  EXPECT_FALSE(image.objects[0].difficult);
  EXPECT_EQ(image.objects[1].category, "dog");
  EXPECT_EQ(image.objects[1].box, (Box{4.5, 5, 1, 4}));  // one pixel wide
  EXPECT_TRUE(image.objects[1].difficult);
  EXPECT_EQ(image.objects[2].category, "a < b");
  EXPECT_EQ(image.objects[2].box, (Box{-4, 1, 64, 1}));  // as it is, though it reaches beyond
  EXPECT_TRUE(image.points.empty());
}

TEST(Voc, PointsAreLeftOutAndTold) {
  const VocImage image = parse_voc(
      file(object("cat", "0 0 0 0") + object("dog", "5 6 7 8") + object("cat", "5 6 5 6")),
      "f.xml");
  ASSERT_EQ(image.objects.size(), 1u);
  EXPECT_EQ(image.objects[0].index, 1);
  EXPECT_EQ(image.points, (std::vector<std::string>{
                              "f.xml: object[0] ('cat'): the box is a point, [0, 0, 0, 0]",
                              "f.xml: object[2] ('cat'): the box is a point, [5, 6, 5, 6]"}));
}

TEST(Voc, WhatAFileMayLeaveOut) {
  const VocImage image = parse_voc("<annotation/>", "f.xml");
  EXPECT_EQ(image.file_name, "");
  EXPECT_EQ(image.width, 0);
  EXPECT_TRUE(image.objects.empty());
}

TEST(Voc, ErrorsNameFileObjectRuleAndValue) {
  const std::string where = "f.xml: object[0] ('cat'): ";
  EXPECT_EQ(said_of(file(object("cat", "5 1 4 9"))),
            where + "bndbox must have xmax at least xmin and ymax at least ymin, got [5, 1, 4, 9]");
  EXPECT_TRUE(contains(said_of(file(object("cat", "1 9 4 8"))), "[1, 9, 4, 8]"));
  const std::string number = " must be a number of at most 1000000000, got ";
  EXPECT_EQ(said_of(file(object("cat", "nan 1 4 9"))), where + "xmin" + number + "'nan'");
  EXPECT_EQ(said_of(file(object("cat", "1 inf 4 9"))), where + "ymin" + number + "'inf'");
  EXPECT_EQ(said_of(file(object("cat", "1 1 4x 9"))), where + "xmax" + number + "'4x'");
  EXPECT_EQ(said_of(file(object("cat", "1 1 4 1e999"))), where + "ymax" + number + "'1e999'");
  EXPECT_EQ(said_of(file(object("cat", "1 1 4 -1e10"))), where + "ymax" + number + "'-1e10'");
  EXPECT_EQ(said_of(file(object("cat", "1 1 4"))), where + "ymax is empty");
  EXPECT_EQ(said_of(file("<object><name>cat</name></object>")), where + "bndbox is missing");
  EXPECT_EQ(said_of(file("<object><name>cat</name><bndbox/></object>")), where + "xmin is missing");
  EXPECT_EQ(said_of(file("<object><name>cat</name><bndbox/><bndbox/></object>")),
            where + "bndbox comes twice");
  EXPECT_EQ(said_of(file(object("cat", "1 1 4 4", "<difficult>2</difficult>"))),
            where + "difficult must be 0 or 1, got 2");
  EXPECT_EQ(said_of(file(object("a", "1 1 2 2") + "<object/>")),
            "f.xml: object[1]: name is missing");
  EXPECT_EQ(said_of(file(object(" ", "1 1 2 2"))), "f.xml: object[0]: name is empty");
  EXPECT_EQ(said_of(file("", "<size><width>4</width></size>")), "f.xml: height is missing");
  EXPECT_EQ(said_of(file("", "<size><width>4.5</width><height>4</height></size>")),
            "f.xml: width must be a whole number that is not negative, got 4.5");
  EXPECT_EQ(said_of(file("", "<size/><size/>")), "f.xml: size comes twice");
  EXPECT_EQ(said_of("<html/>"), "f.xml: the outermost element must be annotation, got 'html'");
  EXPECT_EQ(said_of("<annotation/><annotation/>"), "f.xml: annotation comes twice");
}

TEST(Voc, HostileTexts) {
  const std::string good = file(object("cat", "1 2 3 4") + object("dog", "5 6 7 8"));
  EXPECT_EQ(said_of(good), "");
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_TRUE(said_of(good.substr(0, length)).starts_with("f.xml: ")) << length;
  }
  for (const char* text : {"", "x", "<", "<a", "{}", "<annotation>", "<annotation></a>"}) {
    EXPECT_TRUE(said_of(text).starts_with("f.xml: not XML: ")) << text << said_of(text);
  }
  EXPECT_EQ(said_of(std::string("<annotation/>\0<", 15)), "f.xml: holds a zero byte");
  EXPECT_EQ(said_of(file(object("\xff", "1 2 3 4"))), "f.xml: must be UTF-8");
  EXPECT_EQ(said_of(std::string((size_t{16} << 20) + 1, ' ')),
            "f.xml: a VOC file must have at most 16777216 bytes, got 16777217");
  // Entities are not expanded, and depth costs no stack.
  EXPECT_EQ(parse_voc(file(object("&e;", "1 2 3 4")), "f").objects[0].category, "&e;");
  std::string deep;
  for (int i = 0; i < 1000000; ++i) deep += "<a>";
  EXPECT_TRUE(contains(said_of("<annotation>" + deep), "not XML"));
  for (int i = 0; i < 1000000; ++i) deep += "</a>";
  EXPECT_EQ(said_of(file(deep)), "");
  qna::testing::with_random_damage(good, 2000, [](std::string_view damaged) {
    const std::string said = complaint([&] { parse_voc(damaged, "f.xml"); });
    EXPECT_TRUE(said.empty() || said.starts_with("f.xml: ")) << said;
  });
}

class VocFolder : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(folder.path(name)).parent_path());
    std::ofstream(folder.path(name), std::ios::binary) << content;
  }

  TemporaryFolder folder;
};

TEST_F(VocFolder, ImagesByNameCategoriesByName) {
  put("Annotations/b.xml", file(object("dog", "1 1 2 2") + object("cat", "3 3 3 3")));
  put("Annotations/a.xml", file(object("cat", "1 1 2 4", "<difficult>1</difficult>"), ""));
  put("Annotations/.c.xml", "hidden");
  put("Annotations/notes.txt", "no annotation");
  const Voc voc = read_voc(folder.path("Annotations"));
  const Annotations& all = voc.annotations;
  ASSERT_EQ(all.images.size(), 2u);
  EXPECT_EQ(all.images[0].id, 1);
  EXPECT_EQ(all.images[0].file_name, "a.jpg");  // after the file itself
  EXPECT_EQ(all.images[0].width, 0);
  EXPECT_EQ(all.images[1].id, 2);
  EXPECT_EQ(all.images[1].width, 40);
  ASSERT_EQ(all.categories.size(), 2u);
  EXPECT_EQ(all.categories[0].name, "cat");
  EXPECT_EQ(all.categories[1].id, 2);
  ASSERT_EQ(all.annotations.size(), 2u);
  EXPECT_EQ(all.annotations[0].id, 1);
  EXPECT_EQ(all.annotations[0].area, 8);
  EXPECT_TRUE(all.annotations[0].ignore);
  EXPECT_FALSE(all.annotations[0].crowd);
  EXPECT_EQ(all.annotations[1].image, 1);
  EXPECT_EQ(all.annotations[1].category, 1);
  ASSERT_EQ(voc.points.size(), 1u);
  EXPECT_TRUE(contains(voc.points[0], "b.xml: object[1] ('cat')"));
}

TEST_F(VocFolder, ClassNamesDecideTheLabels) {
  put("x/a.xml", file(object("cat", "1 1 2 4") + object("dog", "1 1 2 2")));
  const Voc voc = read_voc(folder.path("x"), {"dog", "horse", "cat"});
  EXPECT_EQ(voc.annotations.categories.size(), 3u);
  EXPECT_EQ(voc.annotations.annotations[0].category, 2);
  EXPECT_EQ(
      complaint([&] { read_voc(folder.path("x"), {"cat"}); }),
      folder.path("x/a.xml") + ": object[1]: name must be one of the 1 class_names, got 'dog'");
  EXPECT_TRUE(contains(complaint([&] { read_voc(folder.path("x"), {"cat", "cat"}); }), "twice"));
}

TEST_F(VocFolder, Lists) {
  for (const char* name : {"a", "b", "c"}) {
    put(fmt::format("Annotations/{}.xml", name),
        file("", fmt::format("<filename>{}.png</filename>", name)));
  }
  put("ImageSets/Main/train.txt", "c\r\n\n  a  \n");
  const Voc voc = read_voc(folder.path("ImageSets/Main/train.txt"));
  ASSERT_EQ(voc.annotations.images.size(), 2u);
  EXPECT_EQ(voc.annotations.images[0].file_name, "a.png");
  EXPECT_EQ(voc.annotations.images[1].file_name, "c.png");

  const auto said_of_list = [&](const std::string& content) {
    put("ImageSets/Main/x.txt", content);
    return complaint([&] { read_voc(folder.path("ImageSets/Main/x.txt")); });
  };
  EXPECT_TRUE(contains(said_of_list("a\nz\n"), "Annotations/z.xml"));
  EXPECT_TRUE(contains(said_of_list("a\na\n"), "the name 'a' comes twice"));
  EXPECT_TRUE(contains(said_of_list("a\n../a\n"), "line 2 must be the name of a file"));
  EXPECT_TRUE(contains(said_of_list("a -1\n"), "line 1 must be the name of a file"));
  EXPECT_TRUE(contains(said_of_list("\n"), "the list is empty"));
  put("train.txt", "a");
  EXPECT_TRUE(contains(complaint([&] { read_voc(folder.path("train.txt")); }),
                       "must be in a folder ImageSets"));
  std::filesystem::create_directories(folder.path("empty"));
  EXPECT_TRUE(contains(complaint([&] { read_voc(folder.path("empty")); }), "no .xml file"));
}

}  // namespace
}  // namespace qna::coco
