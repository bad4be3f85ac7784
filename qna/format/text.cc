#include "qna/format/text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace qna::format {

// The table of the Unicode standard (3.9, D92): the lead byte gives the length; the smallest code
// point of each length forbids longer spellings of a shorter one.
bool is_utf8(std::string_view text) {
  constexpr uint32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i++]);
    if (lead < 0x80) continue;
    const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc0 || lead >= 0xf8 || text.size() - i < static_cast<size_t>(more)) return false;
    uint32_t code = lead & (0x3fu >> more);
    for (int k = 0; k < more; ++k) {
      const auto next = static_cast<uint8_t>(text[i++]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    if (code < kSmallest[more] || code > 0x10ffff || surrogate) return false;
  }
  return true;
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kLongest = 200;
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint8_t>(c));
    }
  }
  return out + (text.size() > kLongest ? "...'" : "'");
}

std::string printable(std::string text) {
  for (char& c : text) {
    if ((c >= 0 && c < ' ') || c == 0x7f) c = '?';
  }
  return text;
}

std::string in_brackets(std::span<const int64_t> shape) {
  constexpr size_t kLongest = 16;
  const auto shown = shape.first(std::min(shape.size(), kLongest));
  return fmt::format("[{}{}]", fmt::join(shown, ", "), shape.size() > kLongest ? ", ..." : "");
}

}  // namespace qna::format
