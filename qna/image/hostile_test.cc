// Broken and malicious files give an image or a qna::Error, never anything else. Run this under
// the sanitizers: make asan.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include <stdio.h>  // jpeglib.h needs it before it

#include <jpeglib.h>

#include "qna/image/golden_testonly.h"
#include "qna/image/read.h"

namespace qna::image {
namespace {

using namespace testing;
using Bytes = std::vector<uint8_t>;

// Flips may claim a large image; memory for it would only cost time here.
constexpr ReadOptions kSmall = {.max_pixels = 1 << 18};

// True for an image, false for a qna::Error that names the file.
bool survives(const Bytes& bytes) {
  try {
    check_image(decode_image(bytes, "hostile", kSmall), "the result");
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("hostile: ", 0), 0u) << error.what();
    return false;
  }
}

constexpr const char* kJpegs[] = {
    "420.jpg",  "progressive.jpg", "restart.jpg",       "grey.jpg",
    "cmyk.jpg", "ycck.jpg",        "orientation_6.jpg", "cmyk_progressive.jpg"};
constexpr const char* kPngs[] = {"rgb8.png", "palette4_transparent.png", "rgba16_interlaced.png",
                                 "grey1_interlaced.png", "rgb8_exif.png"};

// Not even the last byte may be missing: half an image is no image.
TEST(Hostile, EveryTruncationIsAnError) {
  std::vector<std::string> names(std::begin(kJpegs), std::end(kJpegs));
  names.insert(names.end(), std::begin(kPngs), std::end(kPngs));
  for (const std::string& name : names) {
    const Bytes whole = image_bytes(name);
    ASSERT_TRUE(survives(whole)) << name;
    for (size_t size = 0; size < whole.size(); ++size) {
      ASSERT_FALSE(survives(Bytes(whole.begin(), whole.begin() + size)))
          << name << " cut to " << size << " of " << whole.size();
    }
  }
}

// One to four wild bytes at random places after the magic bytes and before `end`; then `mend`.
int count_survivors(const std::string& name, int rounds, void (*mend)(Bytes&),
                    size_t end = SIZE_MAX) {
  const Bytes whole = image_bytes(name);
  std::mt19937 random(5);
  int survivors = 0;
  for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
    Bytes bytes = whole;
    for (uint32_t flips = 1 + random() % 4; flips > 0; --flips) {
      const size_t place = 8 + random() % (std::min(bytes.size(), end) - 8);
      // Half of the time one bit, which keeps more of the structure.
      bytes[place] ^= random() % 2 == 0 ? 1u << random() % 8 : 1 + random() % 255;
    }
    mend(bytes);
    survivors += survives(bytes);
  }
  return survivors;
}

TEST(Hostile, FlippedBytesInJpegFiles) {
  for (const char* name : kJpegs) {
    const int survivors = count_survivors(name, 3000, [](Bytes&) {});
    // Both ways were tried: flips in tables only change colours.
    EXPECT_GT(survivors, 100) << name;
    EXPECT_LT(survivors, 2900) << name;
  }
}

uint32_t crc(std::span<const uint8_t> bytes) {
  uint32_t value = ~0u;
  for (const uint8_t byte : bytes) {
    value ^= byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0u);
  }
  return ~value;
}

uint32_t get32(const Bytes& bytes, size_t at) {
  return uint32_t{bytes[at]} << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3];
}

void put32(Bytes& bytes, size_t at, uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes[at + i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

// Puts right checksums behind all chunks that fit, so that flips get past them.
void mend_checksums(Bytes& bytes) {
  size_t at = 8;
  while (at + 12 <= bytes.size()) {
    const size_t size = get32(bytes, at);
    if (size > bytes.size() - at - 12) return;
    put32(bytes, at + 8 + size, crc(std::span(bytes).subspan(at + 4, size + 4)));
    at += size + 12;
  }
}

TEST(Hostile, FlippedBytesInPngFiles) {
  int survivors = 0;
  for (const char* name : kPngs) {
    // No flip gets past the checksums of chunks that matter.
    EXPECT_LT(count_survivors(name, 1000, [](Bytes&) {}), 100) << name;
    // Pixels have a checksum of their own, but not sizes, kinds, palettes and chunk lengths.
    const int mended = count_survivors(name, 3000, &mend_checksums);
    EXPECT_LT(mended, 2900) << name;
    survivors += mended;
  }
  EXPECT_GT(survivors, 0);
}

// The same with all flips in the first chunks: size, depth, kind, interlacing, palette.
TEST(Hostile, FlippedHeadsOfPngFiles) {
  int survivors = 0;
  for (const char* name : kPngs) survivors += count_survivors(name, 3000, &mend_checksums, 64);
  EXPECT_GT(survivors, 100);
}

TEST(Hostile, RandomBytesBehindTheMagic) {
  std::mt19937 random(9);
  for (const char* name : {"420.jpg", "rgb8.png"}) {
    const Bytes whole = image_bytes(name);
    for (int round = 0; round < 500; ++round) {
      Bytes bytes(whole.begin(), whole.begin() + 8);
      for (int i = 0; i < 200; ++i) bytes.push_back(static_cast<uint8_t>(random()));
      ASSERT_FALSE(survives(bytes)) << name << " round " << round;
    }
  }
}

std::string complaint_about(const Bytes& bytes, const ReadOptions& options = {}) {
  return complaint([&] { decode_image(bytes, "bomb", options); });
}

TEST(Bombs, PngThatClaimsToBeLarge) {
  const auto claiming = [](uint32_t width, uint32_t height) {
    Bytes bytes = image_bytes("rgb8.png");
    put32(bytes, 16, width);
    put32(bytes, 20, height);
    mend_checksums(bytes);
    return bytes;
  };
  EXPECT_EQ(complaint_about(claiming(20000, 20000)),
            "bomb: a picture must have at most 268435456 pixels, got 20000 x 20000 (width x "
            "height)");
  EXPECT_EQ(complaint_about(claiming(0x7fffffff, 1)),
            "bomb: the sides of a picture must be in [1, 16777216], got 2147483647 x 1 (width x "
            "height)");
}

TEST(Bombs, JpegThatClaimsToBeLarge) {
  Bytes bytes = image_bytes("420.jpg");
  const uint8_t frame[] = {0xff, 0xc0};
  const auto at = std::search(bytes.begin(), bytes.end(), std::begin(frame), std::end(frame));
  ASSERT_NE(at, bytes.end());
  std::fill_n(at + 5, 4, 0x80);  // height and width
  EXPECT_EQ(complaint_about(bytes),
            "bomb: a picture must have at most 268435456 pixels, got 32896 x 32896 (width x "
            "height)");
}

TEST(Bombs, MaxPixelsIsTheLastGoodSize) {
  for (const char* name : {"420.jpg", "rgb8.png"}) {
    const Bytes bytes = image_bytes(name);
    EXPECT_EQ(complaint_about(bytes, {.max_pixels = 21 * 18}), "");
    EXPECT_EQ(complaint_about(bytes, {.max_pixels = 21 * 18 - 1}),
              "bomb: a picture must have at most 377 pixels, got 21 x 18 (width x height)");
  }
}

// A file of one scan per component, the last scan `repeats` times. libjpeg works through all.
Bytes many_scans(int repeats) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = 8;
  info.image_height = 8;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  const jpeg_scan_info scans[] = {
      {1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
  info.scan_info = scans;
  info.num_scans = 3;
  jpeg_start_compress(&info, TRUE);
  Image image = noise(8, 8, 3);
  for (int64_t y = 0; y < 8; ++y) {
    uint8_t* row = image.row(y);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  Bytes bytes(memory, memory + size);
  free(memory);

  const uint8_t start_of_scan[] = {0xff, 0xda};
  const auto last =
      std::find_end(bytes.begin(), bytes.end(), std::begin(start_of_scan), std::end(start_of_scan));
  const Bytes scan(last, bytes.end() - 2);
  for (int i = 1; i < repeats; ++i) bytes.insert(bytes.end() - 2, scan.begin(), scan.end());
  return bytes;
}

TEST(Bombs, JpegOfManyScans) {
  EXPECT_EQ(complaint_about(many_scans(1)), "");
  EXPECT_EQ(complaint_about(many_scans(100)), "");
  EXPECT_EQ(complaint_about(many_scans(1000)), "bomb: a JPEG file must have at most 200 scans");
}

}  // namespace
}  // namespace qna::image
