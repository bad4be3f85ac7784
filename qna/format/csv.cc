#include "qna/format/csv.h"

#include <algorithm>

#include "qna/base/error.h"

namespace qna::format {
namespace {

using Line = std::vector<std::string>;

// One value from `at` on, which moves behind it: to a comma, a line's end or the end.
std::string take_value(const std::string& text, size_t& at, const std::string& where) {
  std::string value;
  if (at == text.size() || text[at] != '"') {
    const size_t end = std::min(text.find_first_of(",\n", at), text.size());
    value = text.substr(at, end - at);
    at = end;
    if (value.ends_with('\r')) value.pop_back();
    return value;
  }
  for (++at;; ++at) {
    check(at < text.size(), "{}: a quote is not closed", where);
    if (text[at] == '"' && (++at == text.size() || text[at] != '"')) break;
    value += text[at];
  }
  if (at < text.size() && text[at] == '\r') ++at;
  check(at == text.size() || text[at] == ',' || text[at] == '\n',
        "{}: a comma or the line's end must follow a closing quote", where);
  return value;
}

}  // namespace

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::vector<Line> parse_csv(const std::string& text, const std::string& path) {
  std::vector<Line> lines;
  size_t at = 0;
  while (at < text.size()) {
    const std::string where = fmt::format("{}, line {}", path, lines.size() + 1);
    Line line = {take_value(text, at, where)};
    while (at < text.size() && text[at] == ',') line.push_back(take_value(text, ++at, where));
    ++at;  // the line's end
    const size_t values = lines.empty() ? line.size() : lines.front().size();
    check(line.size() == values, "{}: it must have {} values as the first line has, got {}", where,
          values, line.size());
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace qna::format
