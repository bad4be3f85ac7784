#include "qna/data/image_dataset.h"

#include "qna/data/dataset_testonly.h"
#include "tests/support/temporary_folder.h"

namespace qna::data {
namespace {

using namespace ::qna::data::testing;
using ::qna::testing::TemporaryFolder;

TEST(ImageDataset, ImagesOfAllFoldersByPath) {
  const TemporaryFolder folder;
  write_image(folder.path("b/2.png"), plain_image(2));
  write_image(folder.path("a.png"), plain_image(1));
  put(folder.path("notes.txt"), "no picture");
  const ImageDataset dataset(folder.folder().string());
  EXPECT_EQ(content_of(dataset), (Content{{1, 0}, {2, 0}}));
  EXPECT_EQ(dataset.classes().size(), 1u);
  EXPECT_EQ(dataset.read(0, 1).channels, 1);
  EXPECT_THROW(dataset.name(2), Error);
  EXPECT_THROW(dataset.read(-1, 3), Error);
  EXPECT_TRUE(contains(complaint([&] { ImageDataset(folder.path("none")); }), "none"));
}

TEST(ImageDataset, TheLastAreHeldBack) {
  const TemporaryFolder folder;
  for (int i = 0; i < 5; ++i) {
    write_image(folder.path(std::to_string(i) + ".png"), plain_image(i));
  }
  const auto whole = std::make_shared<ImageDataset>(folder.folder().string());
  const HeldBack sets = hold_back(whole, 2);
  EXPECT_EQ(content_of(*sets.train), (Content{{0, 0}, {1, 0}, {2, 0}}));
  EXPECT_EQ(content_of(*sets.val), (Content{{3, 0}, {4, 0}}));
  for (const int64_t count : {0, 5, -1}) {
    EXPECT_TRUE(contains(complaint([&] { hold_back(whole, count); }), std::to_string(count)));
  }
}

}  // namespace
}  // namespace qna::data
