#include "qna/data/image_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "qna/base/error.h"
#include "qna/image/write_png.h"
#include "tests/support/temporary_folder.h"

namespace qna::data {
namespace {

using ::qna::testing::TemporaryFolder;

// A grey image of one value, so that its pixels say which one it is.
void write_image(const std::string& path, uint8_t value, int64_t height = 4, int64_t width = 4) {
  image::Image image = image::make_image(height, width, 3);
  std::fill(image.pixels.begin(), image.pixels.end(), value);
  image::write_png(path, image);
}

image::Image read_as_it_is(const std::string& path) {
  return read_fitted(path, {.resize = 0, .crop = {0, 0}});
}

TEST(ImageStream, KeepsTheOrderForAnyThreadsAndReadAhead) {
  const TemporaryFolder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 40; ++i) {
    paths.push_back(folder.path("p" + std::to_string(i) + ".png"));
    write_image(paths.back(), static_cast<uint8_t>(i), 1 + i % 3, 2 + i % 5);
  }
  for (const int threads : {1, 2, 5})
    for (const size_t ahead : {1, 3, 100}) {
      ImageStream stream(paths, read_as_it_is, threads, ahead);
      for (size_t i = 0; i < paths.size(); ++i) {
        const std::optional<StreamedImage> image = stream.next();
        ASSERT_TRUE(image.has_value());
        EXPECT_EQ(image->index, i);
        EXPECT_EQ(image->error, "");
        EXPECT_EQ(image->image.height, static_cast<int64_t>(1 + i % 3));
        EXPECT_EQ(image->image.width, static_cast<int64_t>(2 + i % 5));
        EXPECT_EQ(image->image.pixels.back(), i);
      }
      EXPECT_FALSE(stream.next().has_value());
      EXPECT_FALSE(stream.next().has_value());
    }
}

TEST(ImageStream, ReportsABrokenFileAndGoesOn) {
  const TemporaryFolder folder;
  const std::vector<std::string> paths = {folder.path("a.png"), folder.path("broken.png"),
                                          folder.path("none.png"), folder.path("b.png")};
  write_image(paths[0], 1);
  std::ofstream(paths[1]) << "no picture";
  write_image(paths[3], 2);
  ImageStream stream(paths, read_as_it_is, 2, 2);
  EXPECT_EQ(stream.next()->error, "");
  EXPECT_NE(stream.next()->error.find("broken.png"), std::string::npos);
  EXPECT_NE(stream.next()->error.find("none.png"), std::string::npos);
  const std::optional<StreamedImage> last = stream.next();
  EXPECT_EQ(last->error, "");
  EXPECT_EQ(last->image.pixels.front(), 2);
}

TEST(ImageStream, CanBeLeftEarlyAndEmpty) {
  const TemporaryFolder folder;
  std::vector<std::string> paths(50, folder.path("a.png"));
  write_image(paths[0], 1);
  {
    ImageStream stream(paths, read_as_it_is, 3, 4);
    EXPECT_TRUE(stream.next().has_value());
  }  // ends without waiting for the other 49
  ImageStream none({}, read_as_it_is, 2, 4);
  EXPECT_FALSE(none.next().has_value());
}

TEST(FindImages, FilesAsTheyAreAndFoldersInOrder) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("below"));
  for (const char* name : {"b.png", "a.JPG", "below/c.jpeg", "notes.txt"}) {
    std::ofstream(folder.path(name)) << "x";
  }
  const std::vector<std::string> expected = {folder.path("a.JPG"), folder.path("b.png"),
                                             folder.path("below/c.jpeg"), folder.path("notes.txt")};
  EXPECT_EQ(find_images({folder.folder().string(), folder.path("notes.txt")}), expected);
}

TEST(FindImages, Mistakes) {
  const TemporaryFolder folder;
  EXPECT_THROW(find_images({folder.path("none")}), Error);
  std::filesystem::create_directories(folder.path("empty"));
  EXPECT_THROW(find_images({folder.path("empty")}), Error);
}

}  // namespace
}  // namespace qna::data
