#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <cstring>

namespace qna::fuzz {
namespace {

constexpr size_t kMostBytes = 1 << 16;

class Mutation {
 public:
  Mutation(const std::vector<std::string>& seeds, std::mt19937_64& random)
      : seeds_(seeds), random_(random) {}

  std::string run() {
    std::string bytes = seeds_[below(seeds_.size())];
    // A header in JSON is where most decisions are taken: change that alone, half of the time.
    uint64_t length = 0;
    if (bytes.size() >= 8) std::memcpy(&length, bytes.data(), 8);
    const bool has_header =
        length > 0 && length <= bytes.size() - std::min<size_t>(8, bytes.size());
    if (has_header && below(4) != 0) {
      std::string header = bytes.substr(8, length);
      const std::string rest = bytes.substr(8 + length);
      change(header);
      length = header.size();
      bytes.assign(reinterpret_cast<const char*>(&length), 8);
      bytes += header + rest;
      if (below(4) != 0) return bytes;
    }
    change(bytes);
    return bytes;
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void change(std::string& bytes) {
    const size_t count = 1 + below(1 + below(8));
    for (size_t i = 0; i < count; ++i) change_once(bytes);
    if (bytes.size() > kMostBytes) bytes.resize(kMostBytes);
  }

  void change_once(std::string& bytes) {
    const size_t at = below(bytes.size() + 1);
    const size_t size = std::min(bytes.size() - at, 1 + below(1 << below(9)));
    switch (below(11)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(below(256));
        break;
      case 2:
        bytes.erase(at, size);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, size));
        break;
      case 4:
        bytes.insert(at, std::string(size, static_cast<char>(below(256))));
        break;
      case 5:
        bytes.resize(at);
        break;
      case 6:
        insert_number(bytes, at);
        break;
      case 7:
        change_digits(bytes, at);
        break;
      case 8: {
        const std::string& other = seeds_[below(seeds_.size())];
        const size_t from = below(other.size() + 1);
        bytes.replace(at, size, other.substr(from, 1 + below(64)));
        break;
      }
      case 9:
        bytes.insert(at, word());
        break;
      default: {  // a piece to another place
        const std::string piece = bytes.substr(at, size);
        bytes.erase(at, size);
        bytes.insert(below(bytes.size() + 1), piece);
      }
    }
  }

  // A number at a limit over the bytes of one.
  void insert_number(std::string& bytes, size_t at) {
    constexpr uint64_t kNumbers[] = {0,
                                     1,
                                     0x7f,
                                     0x80,
                                     0xff,
                                     0x7fff,
                                     0xffff,
                                     0x7fffffff,
                                     0x80000000,
                                     0xffffffff,
                                     0x7fffffffffffffff,
                                     0xffffffffffffffff,
                                     0x7fc00000 /* NaN */,
                                     0x7f800000 /* infinity */};
    uint64_t number = kNumbers[below(std::size(kNumbers))];
    const size_t size = std::min<size_t>(bytes.size() - at, size_t{1} << below(4));
    if (below(2) == 0) number = __builtin_bswap64(number);
    std::memcpy(bytes.data() + at, &number, size);
  }

  // The next number in a text becomes another.
  void change_digits(std::string& bytes, size_t at) {
    constexpr const char* kTexts[] = {"0",
                                      "-1",
                                      "1",
                                      "2",
                                      "3",
                                      "7",
                                      "16",
                                      "255",
                                      "65536",
                                      "2147483648",
                                      "9223372036854775807",
                                      "18446744073709551616",
                                      "1e300",
                                      "-0.0",
                                      "0.5",
                                      "null",
                                      "true",
                                      "\"a\"",
                                      "[]",
                                      "{}"};
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto begin = std::find_if(bytes.begin() + static_cast<long>(at), bytes.end(), is_digit);
    const auto end = std::find_if_not(begin, bytes.end(), is_digit);
    if (begin != bytes.end()) bytes.replace(begin, end, kTexts[below(std::size(kTexts))]);
  }

  std::string word() {
    constexpr const char* kWords[] = {"{",
                                      "}",
                                      "[",
                                      "]",
                                      ",",
                                      ":",
                                      "\"",
                                      "<",
                                      ">",
                                      "</object>",
                                      "<bndbox>",
                                      "F16",
                                      "BF16",
                                      "\"dtype\"",
                                      "\"shape\"",
                                      "\"data_offsets\"",
                                      "__metadata__",
                                      "\"stages\"",
                                      "\"qna\"",
                                      "\"config\"",
                                      "\"kind\"",
                                      "\"image_id\"",
                                      "\"bbox\"",
                                      "\"segmentation\"",
                                      "[[stages]]\n",
                                      "\xff\xd8",
                                      "\xff\xc0",
                                      "\xff\xda",
                                      "IHDR",
                                      "IDAT",
                                      "\x89PNG\r\n\x1a\n",
                                      "ustar",
                                      "\0\0\0\0"};
    return kWords[below(std::size(kWords))];
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64& random_;
};

}  // namespace

std::string mutate(const std::vector<std::string>& seeds, std::mt19937_64& random) {
  return Mutation(seeds, random).run();
}

}  // namespace qna::fuzz
