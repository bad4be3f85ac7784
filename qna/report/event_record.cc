#include "qna/report/event_record.h"

#include <array>
#include <bit>

namespace qna::report {
namespace {

// The CRC of every byte, with the polynomial 0x1edc6f41 in reversed bit order.
constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    table[byte] = crc;
  }
  return table;
}();

template <typename T>
std::string little_endian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> 8 * i & 0xff);
  return bytes;
}

std::string masked_crc(std::string_view bytes) {
  return little_endian<uint32_t>(std::rotr(crc32c(bytes), 15) + 0xa282ead8u);
}

// A message of the protocol in the making. A field is a key, number * 8 + kind, and its value.
class Message {
 public:
  Message& integer(int number, int64_t value) {  // kind 0, negative ones as 2^64 + value
    key(number, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& real(int number, double value) {  // kind 1
    key(number, 1);
    bytes_ += little_endian(std::bit_cast<uint64_t>(value));
    return *this;
  }
  Message& real(int number, float value) {  // kind 5
    key(number, 5);
    bytes_ += little_endian(std::bit_cast<uint32_t>(value));
    return *this;
  }
  Message& bytes(int number, std::string_view value) {  // kind 2: strings and messages too
    key(number, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int number, const Message& value) { return bytes(number, value.bytes_); }

  const std::string& data() const { return bytes_; }

 private:
  void key(int number, int kind) { varint(static_cast<uint64_t>(number * 8 + kind)); }

  // Seven bits a byte, the lowest first; the eighth says that more follow.
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

Message event(const Moment& at) { return Message().real(1, at.wall_time).integer(2, at.step); }

std::string summary_event(const Moment& at, const Message& value) {
  return event(at).message(5, Message().message(1, value)).data();
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) {
    crc = kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ crc >> 8;
  }
  return ~crc;
}

std::string event_record(std::string_view data) {
  const std::string length = little_endian<uint64_t>(data.size());
  return length + masked_crc(length) + std::string(data) + masked_crc(data);
}

std::string version_event(double wall_time) {
  return Message().real(1, wall_time).bytes(3, "brain.Event:2").data();
}

std::string start_event(const Moment& at) {
  return event(at).message(7, Message().integer(1, 1)).data();
}

std::string scalar_event(const Moment& at, std::string_view tag, float value) {
  return summary_event(at, Message().bytes(1, tag).real(2, value));
}

std::string text_event(const Moment& at, std::string_view tag, std::string_view markdown) {
  const Message tensor = Message().integer(1, 7).message(2, Message()).bytes(8, markdown);
  const Message metadata = Message().message(1, Message().bytes(1, "text")).integer(4, 2);
  return summary_event(at, Message().bytes(1, tag).message(8, tensor).message(9, metadata));
}

std::string image_event(const Moment& at, std::string_view tag, const EncodedImage& encoded) {
  const Message image = Message()
                            .integer(1, encoded.height)
                            .integer(2, encoded.width)
                            .integer(3, encoded.channels)
                            .bytes(4, encoded.png);
  return summary_event(at, Message().bytes(1, tag).message(4, image));
}

}  // namespace qna::report
