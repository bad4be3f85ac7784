// Bytes against the format's definition, written out here by hand. tests/tensorboard_test.py reads
// whole files with TensorBoard itself.
#include "qna/report/event_record.h"

#include <gtest/gtest.h>

#include <string>

namespace qna::report {
namespace {

using namespace std::string_literals;

TEST(Crc32c, KnownAnswers) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);  // the check value of the CRC catalogues
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string up, down;
  for (int i = 0; i < 32; ++i) {
    up += static_cast<char>(i);
    down += static_cast<char>(31 - i);
  }
  EXPECT_EQ(crc32c(up), 0x46dd794eu);
  EXPECT_EQ(crc32c(down), 0x113fdb5cu);
}

// The masked CRC, as it stands in a file.
std::string masked(const std::string& bytes) {
  const uint64_t crc = crc32c(bytes);
  const uint64_t sum = ((crc >> 15 | crc << 17) & 0xffffffffu) + 0xa282ead8u;
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(sum >> 8 * i & 0xff);
  return out;
}

TEST(EventRecord, Framing) {
  for (const size_t size : {0, 1, 255, 256, 70000}) {
    const std::string data(size, 'x');
    std::string length(8, '\0');
    for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(size >> 8 * i & 0xff);
    EXPECT_EQ(event_record(data), length + masked(length) + data + masked(data)) << size;
  }
}

const std::string kOnePointFive = "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f"s;  // field 1, 1.5

TEST(Events, Version) {
  EXPECT_EQ(version_event(1.5), kOnePointFive + "\x1a\x0d" + "brain.Event:2");
}

TEST(Events, Start) {
  EXPECT_EQ(start_event({1.5, 7}), kOnePointFive + "\x10\x07" + "\x3a\x02\x08\x01");
}

TEST(Events, Scalar) {
  const std::string value = "\x0a\x01\x61"s + "\x15\x00\x00\x40\xc0"s;  // tag "a", -3 as float32
  EXPECT_EQ(scalar_event({1.5, 300}, "a", -3),
            kOnePointFive + "\x10\xac\x02" + "\x2a\x0a" + "\x0a\x08" + value);
}

TEST(Events, NegativeStepsAreTenBytes) {
  const std::string event = scalar_event({1.5, -1}, "a", 0);
  EXPECT_EQ(event.substr(9, 11), "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
}

TEST(Events, Text) {
  const std::string tensor = "\x08\x07\x12\x00\x42\x02hi"s;
  const std::string metadata = "\x0a\x06\x0a\x04text\x20\x02"s;
  const std::string value = "\x0a\x01\x61\x42\x08"s + tensor + "\x4a\x0a" + metadata;
  EXPECT_EQ(text_event({1.5, 0}, "a", "hi"),
            kOnePointFive + "\x10\x00"s + "\x2a\x1b" + "\x0a\x19" + value);
}

TEST(Events, Image) {
  const std::string image = "\x08\x02\x10\x80\x01\x18\x03\x22\x03PNG"s;
  const std::string value = "\x0a\x01\x61\x22\x0c"s + image;
  EXPECT_EQ(image_event({1.5, 0}, "a", {2, 128, 3, "PNG"}),
            kOnePointFive + "\x10\x00"s + "\x2a\x13" + "\x0a\x11" + value);
}

}  // namespace
}  // namespace qna::report
