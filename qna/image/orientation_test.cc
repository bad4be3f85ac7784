// The EXIF parser on good, odd and hostile data. That each orientation turns the image the right
// way is in read_test.cc.
#include "qna/image/orientation.h"

#include <gtest/gtest.h>

#include <random>

#include "qna/image/golden_testonly.h"

namespace qna::image {
namespace {

using Bytes = std::vector<uint8_t>;

// One directory of two entries, the second of them the orientation.
Bytes tiff(bool big_endian, uint32_t orientation, uint32_t type = 3, uint32_t count = 1,
           uint32_t directory = 8) {
  Bytes bytes(2, big_endian ? 'M' : 'I');
  const auto put = [&](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) {
      bytes.push_back(static_cast<uint8_t>(value >> 8 * (big_endian ? size - 1 - i : i)));
    }
  };
  put(42, 2);
  put(directory, 4);
  put(2, 2);
  for (const uint32_t tag : {0x0100u, 0x0112u}) {
    put(tag, 2);
    put(type, 2);
    put(count, 4);
    put(tag == 0x0112u ? orientation : 7, 2);
    put(0, 2);
  }
  return bytes;
}

TEST(Orientation, BothByteOrders) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    EXPECT_EQ(exif_orientation(tiff(false, orientation)), orientation);
    EXPECT_EQ(exif_orientation(tiff(true, orientation)), orientation);
  }
}

TEST(Orientation, OddDataIsUpright) {
  for (const bool big_endian : {false, true}) {
    EXPECT_EQ(exif_orientation(tiff(big_endian, 0)), 1);
    EXPECT_EQ(exif_orientation(tiff(big_endian, 9)), 1);
    EXPECT_EQ(exif_orientation(tiff(big_endian, 0x0600)), 1);
    EXPECT_EQ(exif_orientation(tiff(big_endian, 6, 4)), 1);                 // another type
    EXPECT_EQ(exif_orientation(tiff(big_endian, 6, 3, 2)), 1);              // two numbers
    EXPECT_EQ(exif_orientation(tiff(big_endian, 6, 3, 1, 0xffffffff)), 1);  // far beyond the end
    EXPECT_EQ(exif_orientation(tiff(big_endian, 6, 3, 1, 0)), 1);
  }
  Bytes bytes = tiff(false, 6);
  bytes[2] = 43;
  EXPECT_EQ(exif_orientation(bytes), 1);
  bytes = tiff(false, 6);
  bytes[1] = 'M';
  EXPECT_EQ(exif_orientation(bytes), 1);
}

// The value ends 2 bytes before the end; without it there is no orientation.
TEST(Orientation, EveryTruncation) {
  const Bytes whole = tiff(true, 6);
  for (size_t size = 0; size <= whole.size(); ++size) {
    // An exact copy, so that the sanitizer sees a read beyond it.
    const Bytes bytes(whole.begin(), whole.begin() + size);
    EXPECT_EQ(exif_orientation(bytes), size >= whole.size() - 2 ? 6 : 1) << size;
  }
}

TEST(Orientation, RandomDataStaysInRange) {
  std::mt19937 random(3);
  for (int round = 0; round < 5000; ++round) {
    Bytes bytes = tiff(round % 2 == 0, 6);
    for (int flips = 0; flips < 3; ++flips) bytes[random() % bytes.size()] = random() % 256;
    const int orientation = exif_orientation(bytes);
    ASSERT_GE(orientation, 1);
    ASSERT_LE(orientation, 8);
  }
}

}  // namespace
}  // namespace qna::image
