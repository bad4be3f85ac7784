// Shared by tests: the data of an explorer's page, read back as the page's script reads it.
#pragma once

#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace qna::report {

inline std::string bytes_of_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 255);
  }
  return bytes;
}

template <typename Number>
std::vector<Number> numbers_of_base64(const nlohmann::json& text) {
  const std::string bytes = bytes_of_base64(text.get<std::string>());
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
  return numbers;
}

inline std::vector<float> unpacked(const nlohmann::json& packed) {
  if (packed["type"] == "float32") return numbers_of_base64<float>(packed["data"]);
  const auto low = numbers_of_base64<float>(packed["low"]);
  const auto step = numbers_of_base64<float>(packed["step"]);
  std::vector<float> numbers;
  for (const uint16_t level : numbers_of_base64<uint16_t>(packed["data"])) {
    const size_t column = numbers.size() % low.size();
    numbers.push_back(low[column] + step[column] * static_cast<float>(level));
  }
  return numbers;
}

inline nlohmann::json explorer_data(const std::string& html) {
  const std::string begin = "<script type=\"application/json\">";
  const size_t at = html.find(begin);
  if (at == std::string::npos) throw std::runtime_error("the page has no data");
  const size_t first = at + begin.size();
  return nlohmann::json::parse(html.substr(first, html.find("</script>", first) - first));
}

}  // namespace qna::report
