// Files of a teacher's targets: found by name, read right, and refused where they break a rule.
#include "qna/data/teacher_targets.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "qna/base/file.h"
#include "qna/data/teacher_targets_testonly.h"
#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::data {
namespace {

using qna::testing::expect_complaint;
using testing::TeacherFile;

TeacherTargets open(const TeacherFile& file) {
  return TeacherTargets(std::make_shared<const std::string>(file.bytes()), "targets");
}

TEST(TeacherTargets, FindsPicturesByName) {
  const TeacherTargets targets = open({});
  EXPECT_EQ(targets.classes(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(targets.features(), 2);
  for (const char* name :
       {"b/two.png", "train/b/two.png", "/home/me/b/two.png", "set.tar:b/two.png"}) {
    ASSERT_EQ(targets.places(name).size(), 2u) << name;
    EXPECT_EQ(targets.places(name)[1].row, 3) << name;
  }
  for (const char* name : {"two.png", "b/two.jpg", "a/two.png", "", "bb/two.png"}) {
    EXPECT_TRUE(targets.places(name).empty()) << name;
  }
}

TEST(TeacherTargets, ReadsViewsProbabilitiesAndFeatures) {
  const TeacherTargets targets = open({});
  const TeacherTargets::Place place = targets.places("a/one.png")[1];
  const image::Image image = image::make_image(9, 10, 3);
  EXPECT_EQ(targets.view(place, image, "one"), (View{1, 2, 3, 4, true}));
  float p[3];
  targets.probabilities(place, /*temperature=*/2, p);
  const double sum = std::exp(2.0) + std::exp(2.5) + std::exp(3.5);
  EXPECT_NEAR(p[0], std::exp(2.0) / sum, 1e-6);
  EXPECT_NEAR(p[2], std::exp(3.5) / sum, 1e-6);
  float features[2];
  targets.features(targets.places("b/two.png")[1], features);
  EXPECT_EQ(features[0], -1);
  EXPECT_EQ(features[1], 3);
  expect_complaint([&] { targets.view(place, image::make_image(10, 9, 3), "one.png"); },
                   {"one.png", "9 x 10", "10 x 9"});
}

TEST(TeacherTargets, FilesOfAFolderAddUp) {
  const qna::testing::TemporaryFolder folder;
  TeacherFile file;
  write_file(folder.path("0.safetensors"), file.bytes());
  file.names = "a/one.png\nc/three.png";
  write_file(folder.path("1.safetensors"), file.bytes());
  const TeacherTargets targets({folder.folder().string()});
  EXPECT_EQ(targets.places("a/one.png").size(), 4u);
  EXPECT_EQ(targets.places("b/two.png").size(), 2u);
  EXPECT_EQ(targets.places("c/three.png").size(), 2u);

  file.classes = {"a", "b", "d"};
  write_file(folder.path("2.safetensors"), file.bytes());
  expect_complaint([&] { TeacherTargets({folder.folder().string()}); },
                   {"2.safetensors", "one teacher", "0.safetensors"});
  std::filesystem::create_directory(folder.path("empty"));
  expect_complaint([&] { TeacherTargets({folder.path("empty")}); }, {"empty", "qna.teacher"});
  expect_complaint([&] { TeacherTargets(std::vector<std::string>{}); }, {"paths"});
}

TEST(TeacherTargets, BrokenFilesAreRefused) {
  struct Case {
    void (*change)(TeacherFile&);
    const char* word;
  };
  for (const auto& [change, word] : {
           Case{[](TeacherFile& f) { f.names = "a/one.png"; }, "2 lines"},
           Case{[](TeacherFile& f) { f.views[2] = 10; }, "height 10"},
           Case{[](TeacherFile& f) { f.views[1] = -1; }, "left -1"},
           Case{[](TeacherFile& f) { f.views[5] = 7; }, "top 7"},
           Case{[](TeacherFile& f) { f.views[5] = 0x7fffffff; }, "top 2147483647"},
           Case{[](TeacherFile& f) { f.views[4] = 2; }, "mirrored 2"},
           Case{[](TeacherFile& f) {
                  f.views_shape = {2, 10, 1};
                },
                "'views'"},
           Case{[](TeacherFile& f) { f.sizes.resize(2); }, "'views' must be I32 of size [1, 0, 5]"},
           Case{[](TeacherFile& f) {
                  f.classes = {"a", "b"};
                },
                "got 2 and 3"},
           Case{[](TeacherFile& f) {
                  f.classes = {"a", 1, "c"};
                },
                "list of names"},
           Case{[](TeacherFile& f) { f.classes = "abc"; }, "list of names"},
       }) {
    TeacherFile file;
    change(file);
    expect_complaint([&] { open(file); }, {"targets: ", word});
  }
  TeacherFile infinite;
  infinite.logits[4] = std::numeric_limits<float>::infinity();
  const TeacherTargets targets = open(infinite);
  float p[3];
  expect_complaint([&] { targets.probabilities(targets.places("a/one.png")[1], 1, p); },
                   {"finite", "view 1"});
}

}  // namespace
}  // namespace qna::data
