#include "qna/format/toml.h"

// Debian's library writes 0.05 as 0.050000000000000003. Compiled here, it uses the shortest form,
// as the standard library has it.
#undef TOML_HEADER_ONLY
#undef TOML_SHARED_LIB
#define TOML_HEADER_ONLY 1
#define TOML_FLOAT_CHARCONV 1
// One of its assertions fails where a table's name begins with a wrong character, which is refused
// with a message two lines later.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "qna/base/error.h"
#include "qna/base/file.h"
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

// A number, a text or a truth value, as its own type.
template <typename Use>
void put(const json& value, const Use& use) {
  if (value.is_string()) {
    use(value.get<std::string>());
  } else if (value.is_boolean()) {
    use(value.get<bool>());
  } else if (value.is_number_integer()) {
    use(value.get<int64_t>());
  } else {
    check(value.is_number(), "to_toml: {} has no place in TOML", value.dump());
    use(value.get<double>());
  }
}

toml::table to_table(const json& object);

toml::array to_array(const json& list) {
  toml::array out;
  for (const json& value : list) {
    if (value.is_object()) {
      out.push_back(to_table(value));
    } else if (value.is_array()) {
      out.push_back(to_array(value));
    } else {
      put(value, [&](auto&& plain) { out.push_back(plain); });
    }
  }
  return out;
}

toml::table to_table(const json& object) {
  toml::table out;
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      out.insert(key, to_table(value));
    } else if (value.is_array()) {
      out.insert(key, to_array(value));
    } else {
      put(value, [&, &name = key](auto&& plain) { out.insert(name, plain); });
    }
  }
  return out;
}

// Where a name or value should begin, toml++ takes some characters beyond ASCII for impossible (an
// é after [ is undefined behaviour there). They have a place in quotes and comments only.
void check_ascii_outside_quotes(std::string_view text, const std::string& origin) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  int64_t line = 1;
  std::string_view quotes;  // that end what is open: one or three of them, or none
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      if (quotes.size() == 1) quotes = {};  // a mistake, which toml++ tells
    } else if (!quotes.empty()) {
      if (c == '\\' && quotes[0] == '"') {
        ++i;
      } else if (text.substr(i).starts_with(quotes)) {
        i += quotes.size() - 1;
        quotes = {};
      }
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == '"' || c == '\'') {
      const std::string_view three = c == '"' ? "\"\"\"" : "'''";
      quotes = text.substr(i).starts_with(three) ? three : three.substr(0, 1);
      i += quotes.size() - 1;
    } else {
      check(static_cast<unsigned char>(c) < 0x80,
            "{}, line {}: a character beyond ASCII must stand in quotes or in a comment", origin,
            line);
    }
  }
}

}  // namespace

json parse_toml(const std::string& text, const std::string& origin) {
  check_ascii_outside_quotes(text, origin);
  try {
    return from_toml(toml::parse(text), origin);
  } catch (const toml::parse_error& error) {
    fail("{}, line {}: {}", origin, error.source().begin.line, error.description());
  }
}

json read_toml_or_json(const std::string& path) {
  const bool is_json = path.ends_with(".json");
  check(is_json || path.ends_with(".toml"), "{}: the file must end in .toml or .json", path);
  const std::string text = read_file(path);
  return is_json ? parse_json(text, path) : parse_toml(text, path);
}

std::string to_toml(const json& object) {
  // Strings as everybody writes them; between three quotes a leading new line would be lost.
  constexpr auto kFlags = toml::toml_formatter::default_flags &
                          ~toml::format_flags::allow_literal_strings &
                          ~toml::format_flags::allow_multi_line_strings;
  std::ostringstream out;
  out << toml::toml_formatter(to_table(object), kFlags) << "\n";
  return out.str();
}

}  // namespace qna::format
