#include "qna/image/write_png.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "qna/image/golden_testonly.h"
#include "qna/image/read.h"

namespace qna::image {
namespace {

using namespace testing;

Image decode(const std::string& bytes, int64_t channels) {
  return decode_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "encoded",
                      {.channels = channels});
}

TEST(WritePng, ReadsBackTheSame) {
  for (const int64_t channels : {1, 3})
    for (const auto& [height, width] : {std::pair{1, 1}, {1, 9}, {9, 1}, {50, 33}}) {
      const Image image = noise(height, width, channels);
      const Image back = decode(encode_png(image, "a.png"), channels);
      EXPECT_EQ(back.height, height);
      EXPECT_EQ(back.width, width);
      EXPECT_EQ(back.pixels, image.pixels);
    }
}

// A grey image stays one in the file: the byte behind the depth is the colour type.
TEST(WritePng, KeepsTheNumberOfChannels) {
  EXPECT_EQ(encode_png(noise(2, 2, 1), "a.png")[25], 0);
  EXPECT_EQ(encode_png(noise(2, 2, 3), "a.png")[25], 2);
}

TEST(WritePng, WritesAFile) {
  std::string folder = (std::filesystem::temp_directory_path() / "qna_png_test.XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const Image image = noise(20, 30, 3);
  write_png(folder + "/a.png", image);
  EXPECT_EQ(read_image(folder + "/a.png").pixels, image.pixels);
  std::filesystem::remove_all(folder);
}

TEST(WritePng, ErrorsNameTheFile) {
  Image broken = noise(2, 2, 3);
  broken.pixels.pop_back();
  EXPECT_EQ(complaint([&] { write_png("a.png", broken); }),
            "a.png: a picture of 2 x 2 x 3 must have 12 bytes of pixels, got 11");
  EXPECT_TRUE(contains(complaint([] { write_png("/nonexistent/a.png", noise(2, 2, 3)); }),
                       "cannot write /nonexistent/a.png"));
}

}  // namespace
}  // namespace qna::image
