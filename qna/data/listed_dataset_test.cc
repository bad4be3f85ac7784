#include "qna/data/listed_dataset.h"

#include "qna/data/dataset_testonly.h"
#include "qna/data/open_dataset.h"
#include "tests/support/temporary_folder.h"

namespace qna::data {
namespace {

using namespace ::qna::data::testing;
using ::qna::testing::TemporaryFolder;

// Tiny-ImageNet in small: train/<class>/images, val/images with a list.
void write_tiny(const TemporaryFolder& folder) {
  for (const auto& [name, value] : {std::pair("cat", 1), std::pair("dog", 2)}) {
    const std::string root = folder.path("set/train/" + std::string(name));
    write_image(root + "/images/" + name + "_0.png", plain_image(static_cast<uint8_t>(value)));
    put(root + "/" + name + "_boxes.txt", "0 0 1 1\n");
  }
  for (int i = 0; i < 3; ++i) {
    write_image(folder.path("set/val/images/val_" + std::to_string(i) + ".png"),
                plain_image(static_cast<uint8_t>(10 + i)));
  }
  put(folder.path("set/val/val_annotations.txt"),
      "val_0.png\tdog\t0\t32\t44\t62\nval_1.png\tcat\t1\t2\t3\t4\r\n\nval_2.png dog\n");
}

TEST(ListedDataset, TinyImageNetAsItComes) {
  const TemporaryFolder folder;
  write_tiny(folder);
  const auto train = open_dataset({.path = folder.path("set"), .split = "train"});
  const auto val = open_dataset({.path = folder.path("set"), .split = "val"});
  EXPECT_EQ(content_of(*train), (Content{{1, 0}, {2, 1}}));
  EXPECT_EQ(content_of(*val), (Content{{11, 0}, {10, 1}, {12, 1}}));
  EXPECT_EQ(val->classes(), train->classes());
  EXPECT_TRUE(val->name(0).ends_with("val/images/val_1.png"));
  EXPECT_EQ(open_dataset({.path = folder.path("set/val")})->size(), 3);  // without a split
  EXPECT_THROW(val->label(3), Error);
}

TEST(ListedDataset, RefusesWhatIsNoList) {
  const TemporaryFolder folder;
  write_tiny(folder);
  const std::string list = folder.path("set/val/val_annotations.txt");
  const auto complaint_of = [&](const std::string& text) {
    put(list, text);
    return complaint([&] { ListedDataset(folder.path("set/val")); });
  };
  EXPECT_EQ(complaint_of(""), list + ": it lists no pictures");
  EXPECT_TRUE(contains(complaint_of("a.png cat\na.png dog\n"), "line 2: 'a.png' is listed twice"))
      << complaint_of("a.png cat\na.png dog\n");
  EXPECT_TRUE(contains(complaint_of("a.png\n"), "line 1: must be a file and its class"));
  EXPECT_TRUE(contains(complaint_of("../a.png cat\n"), "must begin with the name of a picture"));
  EXPECT_TRUE(contains(complaint_of("a.gif cat\n"), "must begin with the name of a picture"));
  put(list, "val_0.png dog\n");
  EXPECT_TRUE(contains(complaint([&] { ListedDataset(folder.path("set/val"), {"cat"}); }),
                       "'dog' is not among"));
}

TEST(KeepClasses, AreSpreadOverTheList) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    for (const char* split : {"train", "val"}) {
      write_image(folder.path("set/" + std::string(split) + "/" + name + "/1.png"),
                  plain_image(static_cast<uint8_t>(name[0])));
    }
  }
  DatasetOptions options{.path = folder.path("set"), .split = "train", .keep_classes = 2};
  const auto two = open_dataset(options);
  EXPECT_EQ(two->classes(), (Names{"a", "c"}));
  EXPECT_EQ(content_of(*two), (Content{{'a', 0}, {'c', 1}}));
  options.split = "val";
  EXPECT_EQ(open_dataset(options)->classes(), two->classes());
  options.keep_classes = 5;
  EXPECT_EQ(open_dataset(options)->size(), 5);
  options.keep_classes = 6;
  EXPECT_TRUE(contains(complaint([&] { open_dataset(options); }),
                       "keep_classes must be at most its 5 classes, got 6"));
  options.keep_classes = -1;
  EXPECT_TRUE(contains(complaint([&] { open_dataset(options); }), "keep_classes must be at least"));
  // A share is held back of what is kept.
  write_image(folder.path("set/train/a/2.png"), plain_image(200));
  EXPECT_EQ(
      open_dataset(
          {.path = folder.path("set"), .split = "val", .val_fraction = 0.5, .keep_classes = 1})
          ->size(),
      1);
}

}  // namespace
}  // namespace qna::data
