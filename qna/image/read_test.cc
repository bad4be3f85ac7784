// Pixels are Pillow's to the bit, for every kind of file.
#include "qna/image/read.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "qna/image/golden_testonly.h"

namespace qna::image {
namespace {

using namespace testing;
namespace fs = std::filesystem;

struct Expected {
  int64_t width;
  int64_t height;
  std::string rgb;
  std::string grey;
};

std::istream& operator>>(std::istream& stream, Expected& e) {
  return stream >> e.width >> e.height >> e.rgb >> e.grey;
}

void expect_image(const std::string& name, const Expected& expected, int64_t min_side) {
  for (const int64_t channels : {3, 1}) {
    SCOPED_TRACE(fmt::format("{}, {} channels, min_side {}", name, channels, min_side));
    const Image image = read_image(image_path(name), {.channels = channels, .min_side = min_side});
    check_image(image, name);
    EXPECT_EQ(image.channels, channels);
    EXPECT_EQ(image.width, expected.width);
    EXPECT_EQ(image.height, expected.height);
    EXPECT_EQ(hash(image.pixels), channels == 3 ? expected.rgb : expected.grey);
  }
}

TEST(Read, EveryKindOfFileAsPillow) {
  std::ifstream table(image_path("pictures.txt"));
  std::string name;
  Expected expected;
  int count = 0;
  for (; table >> name >> expected; ++count) {
    expect_image(name, expected, 0);
    EXPECT_EQ(read_image_size(image_path(name)),
              (std::array<int64_t, 2>{expected.height, expected.width}))
        << name;
  }
  EXPECT_EQ(count, 58);  // lines of pictures.txt
}

// 64 x 48. The shorter side stays at least 3 times min_side.
TEST(Read, ScaledDecodingAsPillowsDraft) {
  const struct {
    int64_t min_side;
    int64_t divisor;
  } rows[] = {{0, 1}, {1, 8}, {2, 8}, {3, 4},  {4, 4},
              {5, 2}, {8, 2}, {9, 1}, {16, 1}, {INT64_MAX, 1}};
  std::ifstream table(image_path("scaled.txt"));
  std::string name;
  int64_t divisor;
  Expected expected;
  int count = 0;
  for (; table >> name >> divisor >> expected; ++count) {
    for (const auto& row : rows) {
      if (row.divisor == divisor) expect_image(name, expected, row.min_side);
    }
  }
  EXPECT_EQ(count, 8);
}

// 21 x 18: no divisor leaves whole pixels, and PNG files cannot be scaled.
TEST(Read, NoScalingThatWouldStretch) {
  for (const char* name : {"420.jpg", "rgb8.png"}) {
    const Image image = read_image(image_path(name), {.min_side = 1});
    EXPECT_EQ(image.width, 21) << name;
    EXPECT_EQ(image.height, 18) << name;
  }
}

// Scaled decoding is close to full decoding in what it stands for, not only in its size.
TEST(Read, ScaledDecodingKeepsTheImage) {
  const Image full = read_image(image_path("large.jpg"));
  const Image half = read_image(image_path("large.jpg"), {.min_side = 8});
  ASSERT_EQ(half.width * 2, full.width);
  double difference = 0;
  for (int64_t y = 0; y < half.height; ++y)
    for (int64_t i = 0; i < half.row_bytes(); ++i) {
      const int64_t left = i / 3 * 6 + i % 3;
      const double mean = (full.row(2 * y)[left] + full.row(2 * y)[left + 3] +
                           full.row(2 * y + 1)[left] + full.row(2 * y + 1)[left + 3]) /
                          4.0;
      difference += std::abs(mean - half.row(y)[i]);
    }
  EXPECT_LT(difference / static_cast<double>(half.pixels.size()), 4);  // measured: 1.3
}

TEST(Read, TheNameDoesNotMatter) {
  EXPECT_EQ(decode_image(image_bytes("rgb8.png"), "x.jpg").pixels,
            read_image(image_path("rgb8.png")).pixels);
}

TEST(Read, ExtraBytesInAndBehindAJpegFileAreHarmless) {
  const std::vector<uint8_t> bytes = image_bytes("420.jpg");
  const Image plain = decode_image(bytes, "plain");
  std::vector<uint8_t> behind = bytes;
  behind.insert(behind.end(), 100, 0x55);
  EXPECT_EQ(decode_image(behind, "behind").pixels, plain.pixels);
  std::vector<uint8_t> inside = bytes;
  inside.insert(inside.end() - 2, 3, 0x00);  // before the end marker
  EXPECT_EQ(decode_image(inside, "inside").pixels, plain.pixels);
}

std::string complaint_of(const std::string& path, const ReadOptions& options = {}) {
  return complaint([&] { read_image(path, options); });
}

TEST(ReadErrors, WrongOptionsAreNamed) {
  const std::string path = image_path("420.jpg");
  EXPECT_EQ(complaint_of(path, {.channels = 2}), path + ": channels must be 1 or 3, got 2");
  EXPECT_EQ(complaint_of(path, {.min_side = -1}), path + ": min_side must be at least 0, got -1");
  EXPECT_EQ(complaint_of(path, {.max_pixels = 0}), path + ": max_pixels must be at least 1, got 0");
}

class ReadFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "qna_read_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string path(const char* name) const { return (folder / name).string(); }
  std::string complaint_about(const char* name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return complaint_of(path(name));
  }
  fs::path folder;
};

TEST_F(ReadFiles, MissingFile) {
  EXPECT_EQ(complaint_of(path("none.jpg")),
            "cannot read " + path("none.jpg") + ": No such file or directory");
}

TEST_F(ReadFiles, Folder) {
  EXPECT_EQ(complaint_of(folder.string()), "cannot read " + folder.string() + ": it is a folder");
}

TEST_F(ReadFiles, PipeThatNobodyWritesTo) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(complaint_of(path("pipe")),
            "cannot read " + path("pipe") + ": it is not a regular file");
}

TEST_F(ReadFiles, UnreadableFile) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  std::ofstream(path("a.jpg")) << "x";
  fs::permissions(path("a.jpg"), fs::perms::none);
  EXPECT_EQ(complaint_of(path("a.jpg")), "cannot read " + path("a.jpg") + ": Permission denied");
}

TEST_F(ReadFiles, FileThatIsTooLarge) {
  std::ofstream(path("a.jpg")) << "x";
  fs::resize_file(path("a.jpg"), (uint64_t{1} << 30) + 1);  // takes no space on disk
  EXPECT_TRUE(
      contains(complaint_of(path("a.jpg")), "at most 1073741824 bytes, this one has 1073741825"))
      << complaint_of(path("a.jpg"));
}

TEST_F(ReadFiles, EmptyFile) {
  EXPECT_EQ(complaint_about("a.jpg", ""), path("a.jpg") + ": the file is empty");
}

TEST_F(ReadFiles, OtherKindsOfFile) {
  EXPECT_EQ(complaint_about("a.jpg", "GIX89a\1\2\3"),
            path("a.jpg") +
                ": only JPEG, PNG and WebP files can be read, this one begins with the bytes "
                "47 49 58 38 39 61 01 02");
  EXPECT_EQ(complaint_about("a.png", "\xff"),
            path("a.png") +
                ": only JPEG, PNG and WebP files can be read, this one begins with the bytes "
                "ff");
}

TEST_F(ReadFiles, MagicBytesAlone) {
  EXPECT_TRUE(contains(complaint_about("a", "\xff\xd8\xff"), path("a") + ": "));
  EXPECT_TRUE(contains(complaint_about("a", "\x89PNG\r\n\x1a\n"), path("a") + ": "));
}

}  // namespace
}  // namespace qna::image
