#include "qna/format/text.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

namespace qna::format {

using nlohmann::json;

bool is_utf8(std::string_view text) {
  try {
    json(text).dump();
  } catch (const json::type_error&) {
    return false;
  }
  return true;
}

std::string valid_utf8(std::string_view text) {
  const std::string quoted =
      json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(quoted).get<std::string>();
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

}  // namespace qna::format
