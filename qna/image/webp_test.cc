// WebP files, made here by Google's encoder: pixels, orientation, and what is no such picture.
#include <gtest/gtest.h>
#include <webp/encode.h>

#include <random>

#include "qna/image/read.h"
#include "tests/support/complaint.h"

namespace qna::image {
namespace {

using qna::testing::complaint;
using Bytes = std::vector<uint8_t>;

Image noise_picture(int64_t height, int64_t width) {
  std::mt19937 random(3);
  Image image = make_image(height, width, 3);
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(random() >> 24);
  return image;
}

Bytes lossless(const Image& image) {
  uint8_t* out = nullptr;
  const size_t size = WebPEncodeLosslessRGB(image.pixels.data(), static_cast<int>(image.width),
                                            static_cast<int>(image.height),
                                            static_cast<int>(image.row_bytes()), &out);
  const Bytes bytes(out, out + size);
  WebPFree(out);
  return bytes;
}

Bytes lossy(const Image& image) {
  uint8_t* out = nullptr;
  const size_t size =
      WebPEncodeRGB(image.pixels.data(), static_cast<int>(image.width),
                    static_cast<int>(image.height), static_cast<int>(image.row_bytes()), 90, &out);
  const Bytes bytes(out, out + size);
  WebPFree(out);
  return bytes;
}

void add_number(Bytes& bytes, uint32_t number, int count) {
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<uint8_t>(number >> (8 * i)));
}

void add_chunk(Bytes& bytes, const char* name, const Bytes& content) {
  bytes.insert(bytes.end(), name, name + 4);
  add_number(bytes, static_cast<uint32_t>(content.size()), 4);
  bytes.insert(bytes.end(), content.begin(), content.end());
  if (content.size() % 2 == 1) bytes.push_back(0);
}

// The same file in the extended layout, with EXIF data behind.
Bytes with_orientation(const Bytes& simple, int64_t height, int64_t width, uint8_t orientation) {
  Bytes flags = {8, 0, 0, 0};
  add_number(flags, static_cast<uint32_t>(width - 1), 3);
  add_number(flags, static_cast<uint32_t>(height - 1), 3);
  const Bytes exif = {'I', 'I', '*', 0, 8, 0,           0, 0, 1, 0, 0x12, 1, 3,
                      0,   1,   0,   0, 0, orientation, 0, 0, 0, 0, 0,    0, 0};
  Bytes chunks = {'W', 'E', 'B', 'P'};
  add_chunk(chunks, "VP8X", flags);
  chunks.insert(chunks.end(), simple.begin() + 12, simple.end());
  add_chunk(chunks, "EXIF", exif);
  Bytes file = {'R', 'I', 'F', 'F'};
  add_number(file, static_cast<uint32_t>(chunks.size()), 4);
  file.insert(file.end(), chunks.begin(), chunks.end());
  return file;
}

TEST(Webp, LosslessPixelsAreThoseThatWentIn) {
  const Image image = noise_picture(13, 22);
  const Image again = decode_image(lossless(image), "a.webp");
  EXPECT_EQ(again.height, 13);
  EXPECT_EQ(again.width, 22);
  EXPECT_EQ(again.pixels, image.pixels);
  EXPECT_EQ(decode_image(lossless(image), "a.webp", {.channels = 1}).channels, 1);
}

TEST(Webp, LossyPixelsAreNear) {
  Image image = make_image(32, 48, 3);
  for (int64_t y = 0; y < 32; ++y)
    for (int64_t x = 0; x < 48; ++x) image.row(y)[3 * x] = static_cast<uint8_t>(2 * x + y);
  const Image again = decode_image(lossy(image), "a.webp");
  ASSERT_EQ(again.pixels.size(), image.pixels.size());
  double difference = 0;
  for (size_t i = 0; i < image.pixels.size(); ++i)
    difference += std::abs(int{again.pixels[i]} - int{image.pixels[i]});
  EXPECT_LT(difference / static_cast<double>(image.pixels.size()), 4);
}

TEST(Webp, OrientationIsApplied) {
  const Image image = noise_picture(5, 8);
  const Bytes simple = lossless(image);
  EXPECT_EQ(decode_image(with_orientation(simple, 5, 8, 1), "a.webp").pixels, image.pixels);
  EXPECT_EQ(decode_image_size(with_orientation(simple, 5, 8, 6), "a.webp"),
            (std::array<int64_t, 2>{8, 5}));
  const Image turned = decode_image(with_orientation(simple, 5, 8, 3), "a.webp");  // by 180 degrees
  for (int64_t x = 0; x < 8; ++x) EXPECT_EQ(turned.row(4)[3 * x], image.row(0)[3 * (7 - x)]);
}

TEST(Webp, BrokenFilesAreRefused) {
  const Bytes whole = lossless(noise_picture(30, 40));
  for (size_t size = 12; size < whole.size(); size += 7) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<int64_t>(size));
    const std::string said = complaint([&] { decode_image(part, "a.webp"); });
    EXPECT_TRUE(said.starts_with("a.webp: the WebP file is ")) << size << ": " << said;
  }
  EXPECT_EQ(complaint([&] { decode_image(whole, "a.webp", {.max_pixels = 1000}); }),
            "a.webp: a picture must have at most 1000 pixels, got 40 x 30 (width x height)");
}

TEST(Webp, OtherKindsAreNamed) {
  const std::pair<std::string, std::string> rows[] = {
      {"GIF89a\1\0\1\0", "GIF"},
      {std::string("II*\0\10\0\0\0", 8), "TIFF"},
      {std::string("MM\0*\0\0\0\10", 8), "TIFF"},
      {"BM123456", "BMP"},
      {std::string("\0\0\0\30ftypheic", 12), "HEIC"},
      {std::string("\0\0\0\30ftypmif1", 12), "HEIC"},
      {std::string("\0\0\0\30ftypavif", 12), "AVIF"}};
  for (const auto& [text, kind] : rows) {
    const Bytes bytes(text.begin(), text.end());
    EXPECT_EQ(complaint([&] { decode_image(bytes, "a.jpg"); }),
              "a.jpg: this is a picture in the format " + kind +
                  ", only JPEG, PNG and WebP files can be read");
  }
}

}  // namespace
}  // namespace qna::image
