#include "qna/data/open_dataset.h"

#include <filesystem>

#include "qna/data/dataset_testonly.h"
#include "tests/support/temporary_folder.h"

namespace qna::data {
namespace {

using namespace ::qna::data::testing;
using ::qna::testing::TemporaryFolder;

std::string open_complaint(const DatasetOptions& options) {
  return complaint([&] { open_dataset(options); });
}

Content opened(const DatasetOptions& options) { return content_of(*open_dataset(options)); }

// A file of n images of 1 x 1 whose pixels are first, first + 1 ..., and of labels 0, 1, 0, 1.
void write_idx(const std::string& folder, const std::string& prefix, uint8_t n, uint8_t first) {
  std::string images{0, 0, 8, 3, 0, 0, 0, static_cast<char>(n), 0, 0, 0, 1, 0, 0, 0, 1};
  std::string labels{0, 0, 8, 1, 0, 0, 0, static_cast<char>(n)};
  for (uint8_t i = 0; i < n; ++i) {
    images += static_cast<char>(first + i);
    labels += static_cast<char>(i % 2);
  }
  std::filesystem::create_directories(folder);
  put(folder + "/" + prefix + "-images-idx3-ubyte", images);
  put(folder + "/" + prefix + "-labels-idx1-ubyte", labels);
}

TEST(OpenDataset, SplitsOfFolders) {
  const TemporaryFolder folder;
  const std::string root = folder.path("set");
  write_image(root + "/train/a/1.png", plain_image(1));
  write_image(root + "/train/b/2.png", plain_image(2));
  write_image(root + "/val/a/3.png", plain_image(3));
  const Content train = {{1, 0}, {2, 1}};
  const Content val = {{3, 0}};
  EXPECT_EQ(opened({.path = root, .split = "train"}), train);
  EXPECT_EQ(opened({.path = root, .split = "val"}), val);
  EXPECT_EQ(opened({.path = root, .split = "test"}), val);  // there is no other
  EXPECT_EQ(opened({.path = root + "/train"}), train);
  EXPECT_EQ(open_dataset({.path = root, .split = "val", .class_names = {"b", "a"}})->label(0), 1);
  EXPECT_EQ(open_complaint({.path = root}),
            root + ": its folders are train, val, which are no classes; choose one by split");
  EXPECT_EQ(open_complaint({.path = root, .split = "extra"}),
            root + ": there is no split 'extra' in it");
  write_image(root + "/test/a/4.png", plain_image(4));
  EXPECT_EQ(opened({.path = root, .split = "test"}), (Content{{4, 0}}));
  EXPECT_EQ(opened({.path = root, .split = "val"}), val);
  for (const char* split : {"..", ".", "a/b", "/"}) {
    EXPECT_TRUE(contains(open_complaint({.path = root, .split = split}), "split must be the name"));
  }
}

TEST(OpenDataset, SplitsOfTarFiles) {
  const TemporaryFolder folder;
  const std::string tar = folder.path("set.tar");
  for (const std::string wrapper : {"", "set/", "./set/"}) {
    write_tar(tar, {{wrapper + "train/a/1.png", png(1)},
                    {wrapper + "train/b/2.png", png(2)},
                    {wrapper + "test/a/3.png", png(3)}});
    EXPECT_EQ(opened({.path = tar, .split = "train"}), (Content{{1, 0}, {2, 1}})) << wrapper;
    EXPECT_EQ(opened({.path = tar, .split = "val"}), (Content{{3, 0}})) << wrapper;
    EXPECT_TRUE(contains(open_complaint({.path = tar}), "choose one by split")) << wrapper;

    write_tar(tar, {{wrapper + "a/1.png", png(1)}, {wrapper + "b/2.png", png(2)}});
    EXPECT_EQ(opened({.path = tar}), (Content{{1, 0}, {2, 1}})) << wrapper;
    EXPECT_TRUE(contains(open_complaint({.path = tar, .split = "train"}), "no split 'train'"));
  }
  write_tar(tar, {{"a/1.png", png(1)}});  // one class, no wrapper
  EXPECT_EQ(open_dataset({.path = tar})->classes(), Names{"a"});
  write_tar(tar, {{"train/a/1.png", png(1)}});  // one split is no wrapper either
  EXPECT_EQ(opened({.path = tar, .split = "train"}), (Content{{1, 0}}));
}

TEST(OpenDataset, SplitsOfIdxFiles) {
  const TemporaryFolder folder;
  const std::string root = folder.path("mnist");
  write_idx(root, "train", 3, 10);
  EXPECT_EQ(opened({.path = root, .split = "train"}), (Content{{10, 0}, {11, 1}, {12, 0}}));
  EXPECT_EQ(opened({.path = root}), (Content{{10, 0}, {11, 1}, {12, 0}}));
  EXPECT_TRUE(contains(open_complaint({.path = root, .split = "test"}), "no split 'test'"));
  write_idx(root, "t10k", 2, 50);
  EXPECT_EQ(opened({.path = root, .split = "test"}), (Content{{50, 0}, {51, 1}}));
  EXPECT_EQ(opened({.path = root, .split = "val"}), (Content{{50, 0}, {51, 1}}));
  EXPECT_EQ(open_dataset({.path = root, .class_names = {"even", "odd"}})->classes(),
            (Names{"even", "odd"}));
  std::filesystem::remove(root + "/t10k-labels-idx1-ubyte");
  EXPECT_EQ(open_complaint({.path = root, .split = "test"}),
            root + ": there is no file t10k-labels-idx1-ubyte in it");
  std::filesystem::copy(root + "/train-images-idx3-ubyte", root + "/train-images-idx3-ubyte.gz");
  EXPECT_TRUE(contains(open_complaint({.path = root}), "there must be one file"));
}

TEST(OpenDataset, AFractionIsHeldBack) {
  const TemporaryFolder folder;
  const std::string root = folder.path("set");
  for (int i = 0; i < 20; ++i) {
    write_image(fmt::format("{}/{}/{:02}.png", root, i % 2 == 0 ? "a" : "b", i),
                plain_image(static_cast<uint8_t>(i)));
  }
  DatasetOptions options{.path = root, .split = "train", .val_fraction = 0.2, .split_seed = 1};
  Content all = opened(options);
  EXPECT_EQ(all.size(), 16u);
  options.split = "val";
  const Content val = opened(options);
  EXPECT_EQ(val.size(), 4u);
  all.insert(all.end(), val.begin(), val.end());
  std::sort(all.begin(), all.end());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(all[i], (std::pair<int, int64_t>(i, i % 2)));
  options.split_seed = 2;
  EXPECT_NE(opened(options), val);

  options.split = "test";
  EXPECT_TRUE(contains(open_complaint(options), "there is no split 'test'"));
  options.split = "";
  EXPECT_TRUE(contains(open_complaint(options), "split must be train, val or test"));
  options.split = "val";
  for (const double wrong : {-0.1, 1.0}) {
    options.val_fraction = wrong;
    EXPECT_TRUE(contains(open_complaint(options), "val_fraction must be at least 0 and below 1"));
  }
}

TEST(OpenDataset, AFractionIsOfTheTrainingImages) {
  const TemporaryFolder folder;
  const std::string root = folder.path("mnist");
  write_idx(root, "train", 10, 0);
  write_idx(root, "t10k", 4, 100);
  DatasetOptions options{.path = root, .split = "train", .val_fraction = 0.4};
  EXPECT_EQ(opened(options).size(), 6u);
  options.split = "val";
  for (const auto& [value, label] : opened(options)) EXPECT_LT(value, 10);
  options.split = "test";
  for (const auto& [value, label] : opened(options)) EXPECT_GE(value, 100);
}

TEST(OpenDataset, WhatIsNoDataSet) {
  const TemporaryFolder folder;
  EXPECT_TRUE(contains(open_complaint({.path = folder.path("none")}),
                       "none: there is no such file or folder; path must be a folder of class"));
  EXPECT_TRUE(contains(open_complaint({.path = folder.folder().string()}), "one folder per class"));
  put(folder.path("text"), "text");
  EXPECT_TRUE(contains(open_complaint({.path = folder.path("text")}), "as a tar file"));
}

}  // namespace
}  // namespace qna::data
