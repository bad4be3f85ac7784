#include "qna/data/detection_dataset.h"

#include "qna/data/detection_testonly.h"

namespace qna::data {
namespace {

using namespace ::qna::data::testing;
using Names = std::vector<std::string>;
using Boxes = std::vector<LabelledBox>;

TEST(DetectionDataset, ImagesByIdWithTheirObjects) {
  DetectionFolder folder;
  for (const int64_t id : {20, 4, 11}) {
    folder.add_image(id, 30, 40);
    folder.write_image(id, 30, 40);
  }
  folder.add_object(20, 90, {1, 2, 10, 20});
  folder.add_object(4, 3, {0, 0, 40, 30});
  folder.add_object(20, 7, {5, 5, 1, 1.5});
  const DetectionDataset dataset(folder.options());
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.classes(), (Names{"c3", "c7", "c90"}));
  EXPECT_EQ(dataset.name(0), folder.path("pictures/4.png"));
  EXPECT_EQ(dataset.name(2), folder.path("pictures/20.png"));
  EXPECT_EQ(dataset.read(1).pixels, noise_image(11, 30, 40).pixels);
  EXPECT_EQ(dataset.objects(0, 30, 40), (Boxes{{0, {0, 0, 40, 30}}}));
  EXPECT_EQ(dataset.objects(1, 30, 40), Boxes{});
  EXPECT_EQ(dataset.objects(2, 30, 40), (Boxes{{2, {1, 2, 11, 22}}, {1, {5, 5, 6, 6.5}}}));
  EXPECT_EQ(dataset.truth().annotations.size(), 3u);
  EXPECT_TRUE(dataset.absent().empty());
  EXPECT_EQ(complaint([&] { dataset.objects(3, 30, 40); }),
            "DetectionDataset: index must be in [0, 3), got 3");
  EXPECT_THROW(dataset.name(-1), Error);
  EXPECT_THROW(dataset.read(3), Error);
  EXPECT_THROW(dataset.objects(0, 0, 4), Error);
}

TEST(DetectionDataset, WhatIsNotToBeLearned) {
  DetectionFolder folder;
  folder.add_image(1, 30, 40);
  folder.write_image(1, 30, 40);
  folder.add_object(1, 3, {1, 1, 5, 5})["iscrowd"] = 1;
  folder.add_object(1, 3, {1, 1, 5, 5})["ignore"] = 1;
  folder.add_object(1, 3, {1, 1, 0, 5});       // no area
  folder.add_object(1, 3, {40, 1, 5, 5});      // outside
  folder.add_object(1, 3, {-9, -9, 9, 100});   // outside
  folder.add_object(1, 3, {-5, 20, 10, 100});  // reaches beyond
  folder.add_object(1, 3, {1e300, 0, 1e300, 5});
  const auto dataset = folder.open();
  EXPECT_EQ(dataset->objects(0, 30, 40), (Boxes{{0, {0, 20, 5, 30}}}));
  EXPECT_EQ(dataset->truth().annotations.size(), 7u);  // the evaluation has all of them
}

TEST(DetectionDataset, BoxesAreScaledToTheFile) {
  DetectionFolder folder;
  folder.add_image(1, 480, 640);
  folder.write_image(1, 24, 64);
  folder.add_object(1, 3, {100, 100, 540, 300});
  folder.add_image(2, 10, 10);
  folder.truth["images"][1].erase("width");
  folder.write_image(2, 20, 20);
  folder.add_object(2, 3, {1, 2, 3, 400});
  const auto dataset = folder.open();
  EXPECT_EQ(dataset->objects(0, 24, 64), (Boxes{{0, {10, 5, 64, 20}}}));
  EXPECT_EQ(dataset->objects(0, 480, 640), (Boxes{{0, {100, 100, 640, 400}}}));
  EXPECT_EQ(dataset->truth().annotations[0].box, (coco::Box{100, 100, 540, 300}));
  // Of unknown size: as they are.
  EXPECT_EQ(dataset->objects(1, 20, 20), (Boxes{{0, {1, 2, 4, 20}}}));
}

TEST(DetectionDataset, AbsentImagesAndALimit) {
  DetectionFolder folder;
  for (int64_t id = 1; id <= 6; ++id) {
    folder.add_image(id, 4, 4);
    folder.add_object(id, 7, {0, 0, static_cast<double>(id), 1});
    if (id != 1 && id != 4) folder.write_image(id, 4, 4);
  }
  DetectionDatasetOptions options = folder.options();
  EXPECT_EQ(complaint([&] { DetectionDataset{options}; }),
            folder.path("gt.json") + ": the picture with the id 1: there is no file '1.png' in " +
                folder.images() + "; skip_absent leaves such pictures out");
  options.skip_absent = true;
  const DetectionDataset all(options);
  EXPECT_EQ(all.size(), 4);
  EXPECT_EQ(all.absent(), (Names{"1.png", "4.png"}));
  options.limit = 3;
  const DetectionDataset some(options);
  ASSERT_EQ(some.size(), 3);
  EXPECT_EQ(some.truth().images[2].id, 5);
  ASSERT_EQ(some.truth().annotations.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    const coco::Annotation& annotation = some.truth().annotations[i];
    EXPECT_EQ(annotation.image, i);
    EXPECT_EQ(annotation.id, some.truth().images[i].id);
    EXPECT_EQ(some.objects(i, 4, 4).size(), 1u);
  }
  EXPECT_EQ(some.truth().find_image(5), 2);
  options.limit = -1;
  EXPECT_EQ(complaint([&] { DetectionDataset{options}; }),
            "DetectionDataset: limit must be at least 0, got -1");
}

TEST(DetectionDataset, NoNameLeadsOutOfTheFolder) {
  DetectionFolder folder;
  folder.write_image(1, 4, 4);
  std::filesystem::create_directories(folder.path("pictures/below"));
  image::write_png(folder.path("pictures/below/a..b.png"), noise_image(1, 4, 4));
  const auto said_of = [&](const nlohmann::json& name) {
    folder.truth["images"] = nlohmann::json::array({{{"id", 5}, {"file_name", name}}});
    DetectionDatasetOptions options = folder.options();
    options.skip_absent = true;  // hostile in any case
    return complaint([&] { DetectionDataset{options}; });
  };
  const std::string where = folder.path("gt.json") + ": the picture with the id 5: file_name ";
  const std::string rule = where + "must be a path inside the folder of pictures, got ";
  EXPECT_EQ(said_of("1.png"), "");
  EXPECT_EQ(said_of("below/a..b.png"), "");
  EXPECT_EQ(said_of("below/../1.png"), rule + "'below/../1.png'");
  EXPECT_EQ(said_of("../gt.json"), rule + "'../gt.json'");
  EXPECT_EQ(said_of(".."), rule + "'..'");
  const std::string absolute = folder.path("pictures/1.png");
  EXPECT_EQ(said_of(absolute), fmt::format("{}'{}'", rule, absolute));
  EXPECT_EQ(said_of(std::string("1.png\0x", 7)), rule + "'1.png\\x00x'");
  EXPECT_EQ(said_of(""), where + "is missing");
}

TEST(DetectionDataset, ClassNamesOfACocoFileMustAgree) {
  DetectionFolder folder;
  folder.add_image(1, 4, 4);
  folder.write_image(1, 4, 4);
  DetectionDatasetOptions options = folder.options();
  const auto said_of = [&](const Names& names) {
    options.class_names = names;
    return complaint([&] { DetectionDataset{options}; });
  };
  EXPECT_EQ(said_of({"c3", "c7", "c90"}), "");
  EXPECT_EQ(said_of({"c3"}),
            options.annotations + ": it must have the 1 categories of class_names, got 3");
  EXPECT_TRUE(contains(said_of({"c3", "c90", "c7"}), "place 1 must be 'c90', got 'c7'"));
  EXPECT_TRUE(contains(said_of({"c3", "c3", "c7"}), "must differ"));
}

TEST(DetectionDataset, VocFiles) {
  DetectionFolder folder;
  folder.write_image(1, 30, 40);
  folder.write_image(2, 30, 40);
  const std::string object =
      "<object><name>{}</name><difficult>{}</difficult><bndbox><xmin>{}</xmin><ymin>{}</ymin>"
      "<xmax>{}</xmax><ymax>{}</ymax></bndbox></object>";
  const auto voc = [&](int id, const std::string& objects) {
    folder.put(
        fmt::format("Annotations/{}.xml", id),
        fmt::format("<annotation><filename>{}.png</filename><size><width>40</width><height>30"
                    "</height></size>{}</annotation>",
                    id, objects));
  };
  voc(1, fmt::format(fmt::runtime(object), "dog", 0, 1, 1, 40, 30) +
             fmt::format(fmt::runtime(object), "cat", 1, 1, 1, 5, 5) +
             fmt::format(fmt::runtime(object), "cat", 0, 9, 9, 9, 9));
  voc(2, fmt::format(fmt::runtime(object), "cat", 0, 2, 3, 4, 4));
  folder.put("ImageSets/Main/val.txt", "2\n");

  const DetectionDataset all(
      {.images = folder.images(), .annotations = folder.path("Annotations")});
  EXPECT_EQ(all.size(), 2);
  EXPECT_EQ(all.classes(), (Names{"cat", "dog"}));
  EXPECT_EQ(all.objects(0, 30, 40), (Boxes{{1, {0, 0, 40, 30}}}));  // without the difficult one
  EXPECT_EQ(all.objects(1, 30, 40), (Boxes{{0, {1, 2, 4, 4}}}));
  EXPECT_EQ(all.points().size(), 1u);
  const DetectionDataset val({.images = folder.images(),
                              .annotations = folder.path("ImageSets/Main/val.txt"),
                              .class_names = {"dog", "cat"}});
  EXPECT_EQ(val.size(), 1);
  EXPECT_EQ(val.objects(0, 30, 40), (Boxes{{1, {1, 2, 4, 4}}}));
}

TEST(DetectionDataset, Mistakes) {
  DetectionFolder folder;
  const auto said_of = [](const std::string& images, const std::string& annotations) {
    return complaint([&] { DetectionDataset({.images = images, .annotations = annotations}); });
  };
  const std::string good = folder.options().annotations;
  EXPECT_EQ(said_of(folder.images(), good),
            good + ": none of its 0 pictures is in " + folder.images());
  EXPECT_EQ(said_of("/nonexistent", good),
            "DetectionDataset: images must be a folder, got '/nonexistent'");
  EXPECT_TRUE(
      contains(said_of(folder.images(), folder.path("a.csv")), "must be a COCO file (.json)"));
  EXPECT_TRUE(contains(said_of(folder.images(), folder.path("a.json")), "cannot read"));
  folder.put("cut.json", folder.truth.dump().substr(0, 40));
  const std::string said = said_of(folder.images(), folder.path("cut.json"));
  EXPECT_TRUE(contains(said, "cut.json: ") && contains(said, "not JSON")) << said;
  folder.add_image(1, 4, 4);
  folder.write_image(1, 4, 4);
  folder.add_object(1, 4, {1, 1, 1, 1});
  folder.put("unknown.json", folder.truth.dump());
  EXPECT_EQ(said_of(folder.images(), folder.path("unknown.json")),
            folder.path("unknown.json") +
                ": annotations[0] (id 1): category_id must be an id in categories, got 4");
}

TEST(DetectionDataset, YoloLabels) {
  DetectionFolder folder;
  std::filesystem::create_directories(folder.path("images"));
  for (const int64_t id : {1, 2, 3})
    image::write_png(folder.path(fmt::format("images/{}.png", id)), noise_image(id, 20, 40));
  folder.put("data.yaml", "names: [cat, dog]\n");
  folder.put("labels/1.txt", "1 0.5 0.5 0.5 0.5\n0 0.25 0.5 0.5 1\n");
  folder.put("labels/2.txt", "");
  DetectionDatasetOptions options{.images = folder.path("images"),
                                  .annotations = folder.path("labels")};
  const DetectionDataset dataset(options);
  ASSERT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.classes(), (Names{"cat", "dog"}));
  EXPECT_EQ(dataset.objects(0, 20, 40), (Boxes{{1, {10, 5, 30, 15}}, {0, {0, 0, 20, 20}}}));
  EXPECT_EQ(dataset.objects(0, 40, 80), (Boxes{{1, {20, 10, 60, 30}}, {0, {0, 0, 40, 40}}}));
  EXPECT_TRUE(dataset.objects(1, 20, 40).empty());
  EXPECT_TRUE(dataset.objects(2, 20, 40).empty());  // without a file
  EXPECT_EQ(dataset.truth().annotations[1].area, 400);

  // A model's order of the same names, and more.
  options.class_names = {"dog", "fox", "cat"};
  EXPECT_EQ(DetectionDataset(options).objects(0, 20, 40)[0].label, 0);
  options.class_names = {"dog", "fox"};
  EXPECT_TRUE(
      contains(complaint([&] { DetectionDataset other(options); }), "the class 'cat' is not"));
  options.class_names = {};

  folder.put("labels/9.txt", "0 0.5 0.5 0.1 0.1\n");
  EXPECT_TRUE(contains(complaint([&] { DetectionDataset other(options); }), "no file '9.jpg'"));
  options.skip_absent = true;
  EXPECT_EQ(DetectionDataset(options).absent(), (Names{"9.jpg"}));
  folder.put("labels/3.txt", "2 0.5 0.5 0.1 0.1\n");
  EXPECT_TRUE(contains(complaint([&] { DetectionDataset other(options); }),
                       "3.txt: the class must be below 2, as there are names, got 2"));
  folder.put("labels/3.txt", "1 5 5 1 1\n");
  EXPECT_TRUE(
      contains(complaint([&] { DetectionDataset other(options); }), "3.txt: line 1: places"));
  std::filesystem::remove(folder.path("data.yaml"));
  EXPECT_TRUE(
      contains(complaint([&] { DetectionDataset other(options); }), "classes.txt or data.yaml"));
}

}  // namespace
}  // namespace qna::data
