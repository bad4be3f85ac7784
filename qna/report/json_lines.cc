#include "qna/report/json_lines.h"

#include <filesystem>
#include <string_view>

#include "qna/base/error.h"
#include "qna/base/file.h"

namespace qna::report {
namespace {

using nlohmann::json;

json parse(std::string_view line) {
  return json::parse(line, /*callback=*/nullptr, /*allow_exceptions=*/false);
}

// The lines without their newlines. Parses none but an unended last one.
std::vector<std::string_view> whole_lines(std::string_view content) {
  std::vector<std::string_view> lines;
  while (!content.empty()) {
    const size_t end = content.find('\n');
    const std::string_view line = content.substr(0, end);
    if (end == std::string_view::npos) {
      // No beginning of an object is an object, so this one is whole.
      if (parse(line).is_object()) lines.push_back(line);
      break;
    }
    lines.push_back(line);
    content.remove_prefix(end + 1);
  }
  return lines;
}

std::string joined(const std::vector<std::string_view>& lines) {
  std::string content;
  for (const std::string_view line : lines) content.append(line) += '\n';
  return content;
}

json object_of(std::string_view line, const std::string& path, size_t number) {
  json object = parse(line);
  check(object.is_object(), "{}: line {} must be one JSON object, got {} bytes that are not", path,
        number, line.size());
  return object;
}

// The path again, after a file with a half-written end was mended.
const std::string& mend(const std::string& path) {
  if (std::filesystem::exists(path)) {
    const std::string content = read_file(path);
    if (!content.empty() && content.back() != '\n') write_file(path, joined(whole_lines(content)));
  }
  return path;
}

bool is_later(const json& value, int64_t step) {
  if (value.is_number_unsigned()) {
    return step < 0 || value.get<uint64_t>() > static_cast<uint64_t>(step);
  }
  if (value.is_number_integer()) return value.get<int64_t>() > step;
  return value.get<double>() > static_cast<double>(step);
}

}  // namespace

JsonLines::JsonLines(const std::string& path) : file_(mend(path), AppendFile::Open::kAppend) {}

void JsonLines::append(const json& object) {
  check(object.is_object(), "JsonLines: object must be a JSON object, got {}", object.type_name());
  file_.append(object.dump(-1, ' ', false, json::error_handler_t::replace) + '\n');
}

std::vector<json> read_json_lines(const std::string& path) {
  const std::string content = read_file(path);
  std::vector<json> objects;
  for (const std::string_view line : whole_lines(content)) {
    objects.push_back(object_of(line, path, objects.size() + 1));
  }
  return objects;
}

int64_t truncate_json_lines(const std::string& path, const std::string& key, int64_t step) {
  if (!std::filesystem::exists(path)) return 0;
  const std::string content = read_file(path);
  const std::vector<std::string_view> lines = whole_lines(content);
  std::vector<std::string_view> kept;
  bool later = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    const json object = object_of(lines[i], path, i + 1);
    if (const auto value = object.find(key); value != object.end()) {
      check(value->is_number(), "{}: line {}: {} must be a number, got {}", path, i + 1, key,
            value->type_name());
      later = is_later(*value, step);
    }
    if (!later) kept.push_back(lines[i]);
  }
  std::string shorter = joined(kept);
  if (shorter != content) write_file(path, shorter);
  return static_cast<int64_t>(lines.size() - kept.size());
}

}  // namespace qna::report
