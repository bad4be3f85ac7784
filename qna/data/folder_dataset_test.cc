#include "qna/data/folder_dataset.h"

#include <filesystem>

#include "qna/data/dataset_testonly.h"
#include "tests/support/temporary_folder.h"

namespace qna::data {
namespace {

using namespace ::qna::data::testing;
using ::qna::testing::TemporaryFolder;

std::string folder_complaint(const std::string& root, const Names& class_names = {}) {
  return complaint([&] { FolderDataset(root, class_names); });
}

TEST(FolderDataset, ClassesByNameThenImagesByPath) {
  const TemporaryFolder folder;
  write_image(folder.path("dog/b.png"), plain_image(4));
  write_image(folder.path("dog/a.PNG"), plain_image(3));
  write_image(folder.path("cat/deep/er/x.Png"), plain_image(1));
  write_image(folder.path("cat/y.png"), plain_image(2));
  write_image(folder.path("Zebra/z.png"), plain_image(0));  // capitals sort first
  put(folder.path("notes.txt"), "no class");
  put(folder.path("dog/notes.txt"), "no picture");
  put(folder.path("dog/._b.png"), "what macOS writes");
  std::filesystem::create_directories(folder.path(".hidden"));
  std::filesystem::create_directories(folder.path("dog/.thumbnails"));
  put(folder.path("dog/.thumbnails/b.png"), "hidden");
  std::filesystem::create_directories(folder.path("dog/looks_like.png"));

  const FolderDataset dataset(folder.folder().string());
  EXPECT_EQ(dataset.classes(), (Names{"Zebra", "cat", "dog"}));
  EXPECT_EQ(content_of(dataset), (Content{{0, 0}, {1, 1}, {2, 1}, {3, 2}, {4, 2}}));
  EXPECT_EQ(dataset.name(1), folder.path("cat/deep/er/x.Png"));
  EXPECT_EQ(dataset.read(0, 1).channels, 1);
  EXPECT_THROW(dataset.label(5), Error);
  EXPECT_THROW(dataset.name(-1), Error);
  EXPECT_THROW(dataset.read(5, 3), Error);
}

TEST(FolderDataset, GivenNamesDecideTheLabels) {
  const TemporaryFolder folder;
  write_image(folder.path("a/1.png"), plain_image(1));
  write_image(folder.path("c/3.png"), plain_image(3));
  const FolderDataset dataset(folder.folder().string(), {"c", "b", "a"});
  EXPECT_EQ(dataset.classes(), (Names{"c", "b", "a"}));
  EXPECT_EQ(content_of(dataset), (Content{{3, 0}, {1, 2}}));  // b may lack images
  EXPECT_TRUE(contains(folder_complaint(folder.folder().string(), {"a", "b"}), "'c' is not among"));
  EXPECT_TRUE(contains(folder_complaint(folder.folder().string(), {"a", "c", "a"}), "'a' twice"));
  EXPECT_TRUE(contains(folder_complaint(folder.folder().string(), {"a", "c", ""}), "empty name"));
}

TEST(FolderDataset, FollowsLinksToFilesAndClasses) {
  const TemporaryFolder folder;
  write_image(folder.path("store/x.png"), plain_image(7));
  std::filesystem::create_directories(folder.path("root/b"));
  std::filesystem::create_symlink(folder.path("store"), folder.path("root/a"));
  std::filesystem::create_symlink(folder.path("store/x.png"), folder.path("root/b/y.png"));
  EXPECT_EQ(content_of(FolderDataset(folder.path("root"))), (Content{{7, 0}, {7, 1}}));
}

TEST(FolderDataset, MistakesSayWhatToDo) {
  const TemporaryFolder folder;
  const std::string root = folder.path("root");
  EXPECT_EQ(folder_complaint(root), root +
                                        ": there is no such folder; give the folder that has one "
                                        "folder of pictures per class");
  put(folder.path("file"), "");
  EXPECT_EQ(folder_complaint(folder.path("file")), folder.path("file") + ": this is not a folder");
  std::filesystem::create_directories(root);
  EXPECT_EQ(folder_complaint(root), root +
                                        ": there are no folders of pictures in it; a data set has "
                                        "one folder per class: <class>/<picture>.jpg");
  write_image(root + "/a.png", plain_image(1));
  EXPECT_EQ(folder_complaint(root), root +
                                        ": the pictures lie directly in it; a data set has one "
                                        "folder per class: <class>/<picture>.jpg");
  write_image(root + "/full/a.png", plain_image(1));
  EXPECT_EQ(folder_complaint(root), "");
  std::filesystem::create_directories(root + "/empty/below");
  EXPECT_EQ(folder_complaint(root),
            root +
                ": the class 'empty' has no picture: there is no .jpg, "
                ".jpeg, .png or .webp file in its folder; fill the folder or "
                "remove it");
}

TEST(FolderDataset, ABrokenImageIsNamedWhenRead) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("a"));
  put(folder.path("a/bad.jpg"), "no picture");
  const FolderDataset dataset(folder.folder().string());
  EXPECT_TRUE(contains(complaint([&] { dataset.read(0, 3); }), folder.path("a/bad.jpg")));
}

TEST(FolderDataset, FilesThatAreNotReadAreCountedAndNamed) {
  const TemporaryFolder folder;
  const std::string root = folder.folder().string();
  write_image(folder.path("cat/a.png"), plain_image(1));
  write_image(folder.path("dog/b.png"), plain_image(2));
  EXPECT_EQ(FolderDataset(root).left_out(), "");
  for (const char* name : {"cat/c.gif", "cat/b.GIF", "dog/d.tiff", "dog/notes.txt", "dog/.hidden"})
    put(folder.path(name), "no picture that is read");
  const FolderDataset dataset(root);
  EXPECT_EQ(dataset.size(), 2);
  EXPECT_EQ(
      dataset.left_out(),
      "4 files are left out: 2 GIF, 1 TIFF, which cannot be read, such as cat/b.GIF; and 1 of "
      "other kinds, such as dog/notes.txt");
  std::filesystem::create_directories(folder.path("fox"));
  put(folder.path("fox/e.heic"), "an iPhone's");
  EXPECT_TRUE(contains(folder_complaint(root), "1 HEIC")) << folder_complaint(root);
}

}  // namespace
}  // namespace qna::data
