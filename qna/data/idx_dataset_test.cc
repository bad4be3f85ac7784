#include "qna/data/idx_dataset.h"

#include <zlib.h>

#include "qna/data/dataset_testonly.h"
#include "tests/support/temporary_folder.h"

namespace qna::data {
namespace {

using namespace ::qna::data::testing;
using ::qna::testing::TemporaryFolder;

std::string number(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string images_file(uint32_t count, uint32_t height, uint32_t width) {
  std::string bytes = number(0x803) + number(count) + number(height) + number(width);
  for (uint32_t i = 0; i < count * height * width; ++i) bytes += static_cast<char>(i * 5);
  return bytes;
}

std::string labels_file(const std::string& labels) {
  return number(0x801) + number(static_cast<uint32_t>(labels.size())) + labels;
}

std::string gzipped(const std::string& bytes, const std::string& path) {
  gzFile file = gzopen(path.c_str(), "wb");
  EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  EXPECT_EQ(gzclose(file), Z_OK);
  return ::qna::testing::content_of(path);
}

class IdxDatasetTest : public ::testing::Test {
 protected:
  std::string images() const { return folder_.path("images"); }
  std::string labels() const { return folder_.path("labels"); }
  std::string complaint_of(const std::string& image_bytes, const std::string& label_bytes,
                           const Names& class_names = {}) {
    put(images(), image_bytes);
    put(labels(), label_bytes);
    return complaint([&] { IdxDataset(images(), labels(), class_names); });
  }

  const TemporaryFolder folder_;
  const std::string good_images_ = images_file(3, 2, 4);
  const std::string good_labels_ = labels_file({2, 0, 5});
};

TEST_F(IdxDatasetTest, ReadsPlainAndGzippedFilesAlike) {
  for (const bool gzip : {false, true}) {
    put(images(), gzip ? gzipped(good_images_, folder_.path("z")) : good_images_);
    put(labels(), gzip ? gzipped(good_labels_, folder_.path("z")) : good_labels_);
    const IdxDataset dataset(images(), labels());
    ASSERT_EQ(dataset.size(), 3);
    EXPECT_EQ(dataset.classes(), (Names{"0", "1", "2", "3", "4", "5"}));
    EXPECT_EQ(dataset.label(0), 2);
    EXPECT_EQ(dataset.label(2), 5);
    EXPECT_EQ(dataset.name(1), images() + "[1]");
    const image::Image grey = dataset.read(1, 1);
    EXPECT_EQ(grey.height, 2);
    EXPECT_EQ(grey.width, 4);
    EXPECT_EQ(grey.pixels, (std::vector<uint8_t>{40, 45, 50, 55, 60, 65, 70, 75}));
    const image::Image colour = dataset.read(2, 3);
    ASSERT_EQ(colour.pixels.size(), 24u);
    for (int i = 0; i < 24; ++i) EXPECT_EQ(colour.pixels[i], 80 + i / 3 * 5);
    EXPECT_THROW(dataset.read(3, 1), Error);
    EXPECT_THROW(dataset.read(-1, 1), Error);
    EXPECT_THROW(dataset.read(0, 2), Error);
    EXPECT_THROW(dataset.label(3), Error);
  }
}

TEST_F(IdxDatasetTest, ClassNames) {
  EXPECT_EQ(complaint_of(good_images_, good_labels_, fashion_mnist_classes()), "");
  EXPECT_EQ(fashion_mnist_classes().size(), 10u);
  EXPECT_EQ(complaint_of(good_images_, good_labels_, {"a", "b", "c", "d", "e"}),
            labels() + ": there are 5 class_names, but a label is 5");
  EXPECT_TRUE(contains(complaint_of(good_images_, good_labels_, {"a", "b", "c", "d", "e", "a"}),
                       "'a' twice"));
}

TEST_F(IdxDatasetTest, WrongHeaders) {
  EXPECT_EQ(complaint_of(good_labels_ + "12345678", good_labels_),
            images() +
                ": a file of pictures (idx3-ubyte) must begin with the bytes 00000803, got "
                "00000801");
  EXPECT_EQ(complaint_of(good_images_, good_images_),
            labels() +
                ": a file of labels (idx1-ubyte) must begin with the bytes 00000801, got "
                "00000803");
  EXPECT_EQ(complaint_of(good_images_, labels_file({1, 2})),
            labels() + ": wrong label count: there are 3 pictures and 2 labels");
  EXPECT_EQ(complaint_of(number(0x803) + number(0) + number(2) + number(2), labels_file("")),
            images() + ": there are no pictures in it");
  for (const auto& [height, width] : {std::pair{0u, 4u}, {4u, 0u}, {8193u, 1u}, {1u, ~0u}}) {
    const std::string header = number(0x803) + number(1) + number(height) + number(width);
    EXPECT_TRUE(contains(complaint_of(header, good_labels_), "the sides of a picture must be in"));
  }
}

TEST_F(IdxDatasetTest, HugeClaimsTakeNoMemory) {
  const std::string header = number(0x803) + number(~0u) + number(8192) + number(8192);
  EXPECT_TRUE(contains(complaint_of(header, good_labels_), "at most 8589934592 bytes of data"));
  // Below that limit, but more than any file of this size can hold.
  const std::string large = number(0x803) + number(1000) + number(1000) + number(1000);
  EXPECT_EQ(complaint_of(large + "pixels", good_labels_),
            images() +
                ": the header claims 1000000000 bytes of data, more than a file of 22 bytes "
                "can hold");
}

TEST_F(IdxDatasetTest, EveryCutAndEveryExtraByteIsNoticed) {
  for (size_t bytes = 0; bytes < good_images_.size(); ++bytes) {
    EXPECT_TRUE(contains(complaint_of(good_images_.substr(0, bytes), good_labels_), "is cut off"));
  }
  for (size_t bytes = 0; bytes < good_labels_.size(); ++bytes) {
    EXPECT_TRUE(contains(complaint_of(good_images_, good_labels_.substr(0, bytes)), "is cut off"));
  }
  EXPECT_TRUE(contains(complaint_of(good_images_ + "x", good_labels_), "there is data behind"));
  EXPECT_TRUE(contains(complaint_of(good_images_, good_labels_ + "x"), "there is data behind"));
}

TEST_F(IdxDatasetTest, EveryCutAndChangeOfAGzipStreamIsNoticed) {
  const std::string packed = gzipped(good_images_, folder_.path("z"));
  ASSERT_EQ(complaint_of(packed, good_labels_), "");
  const Content expected = content_of(IdxDataset(images(), labels()));
  for (size_t bytes = 0; bytes < packed.size(); ++bytes) {
    EXPECT_NE(complaint_of(packed.substr(0, bytes), good_labels_), "") << bytes;
  }
  for (size_t place = 10; place < packed.size(); ++place) {  // behind the header
    std::string changed = packed;
    changed[place] ^= 0x10;
    // Some bits are only there to fill a byte.
    if (!complaint_of(changed, good_labels_).empty()) continue;
    EXPECT_EQ(content_of(IdxDataset(images(), labels())), expected) << place;
  }
  EXPECT_TRUE(contains(complaint_of(gzipped(good_images_ + "x", folder_.path("z")), good_labels_),
                       "there is data behind"));
}

TEST_F(IdxDatasetTest, MissingFilesAndFolders) {
  EXPECT_EQ(complaint([&] { IdxDataset(images(), labels()); }),
            images() + ": there is no such file");
  put(images(), good_images_);
  EXPECT_EQ(complaint([&] { IdxDataset(images(), labels()); }),
            labels() + ": there is no such file");
  const std::string folder = folder_.folder().string();
  EXPECT_EQ(complaint([&] { IdxDataset(folder, labels()); }),
            folder + ": this is not a regular file");
}

}  // namespace
}  // namespace qna::data
