#include "qna/format/toml.h"

#include <toml++/toml.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "qna/base/error.h"
#include "qna/format/fields.h"

namespace qna::format {
namespace {

using nlohmann::json;

json from_toml(const toml::node& node, const std::string& origin) {
  json out;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_table<decltype(value)>) {
      out = json::object();
      for (const auto& [key, child] : value) out[std::string(key.str())] = from_toml(child, origin);
    } else if constexpr (toml::is_array<decltype(value)>) {
      out = json::array();
      for (const toml::node& child : value) out.push_back(from_toml(child, origin));
    } else if constexpr (toml::is_string<decltype(value)> || toml::is_integer<decltype(value)> ||
                         toml::is_floating_point<decltype(value)> ||
                         toml::is_boolean<decltype(value)>) {
      out = value.get();
    } else {
      fail("{}: dates and times have no place here", origin);
    }
  });
  return out;
}

bool is_list_of_tables(const json& value) {
  return value.is_array() && !value.empty() && value.front().is_object();
}

// A value on one line; tables in it as { key = value }.
std::string inline_toml(const json& value) {
  if (value.is_array()) {
    std::string out;
    for (const json& cell : value) out += (out.empty() ? "" : ", ") + inline_toml(cell);
    return "[" + out + "]";
  }
  return value.dump();
}

void write_table(std::string& out, const json& object, const std::string& path) {
  for (const auto& [key, value] : object.items()) {
    if (!value.is_object() && !is_list_of_tables(value)) {
      out += fmt::format("{} = {}\n", key, inline_toml(value));
    }
  }
  for (const auto& [key, value] : object.items()) {
    const std::string inner = path.empty() ? key : path + "." + key;
    if (value.is_object()) {
      out += fmt::format("\n[{}]\n", inner);
      write_table(out, value, inner);
    } else if (is_list_of_tables(value)) {
      for (const json& row : value) {
        out += fmt::format("\n[[{}]]\n", inner);
        write_table(out, row, inner);
      }
    }
  }
}

}  // namespace

json parse_toml(const std::string& text, const std::string& origin) {
  try {
    return from_toml(toml::parse(text), origin);
  } catch (const toml::parse_error& error) {
    fail("{}, line {}: {}", origin, error.source().begin.line, error.description());
  }
}

json read_toml_or_json(const std::string& path) {
  const bool is_json = path.ends_with(".json");
  check(is_json || path.ends_with(".toml"), "{}: the file must end in .toml or .json", path);
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  check(file.good() && text.good(), "{}: cannot read the file", path);
  return is_json ? parse_json(text.str(), path) : parse_toml(text.str(), path);
}

std::string to_toml(const json& object) {
  std::string out;
  write_table(out, object, "");
  return out;
}

}  // namespace qna::format
