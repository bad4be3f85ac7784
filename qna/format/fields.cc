#include "qna/format/fields.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "qna/base/text.h"

namespace qna::format {

using nlohmann::json;

namespace {

const json& empty_object() {
  static const json object = json::object();
  return object;
}

}  // namespace

Fields::Fields(const json& object, std::string subject, std::string path)
    : object_(&object), subject_(std::move(subject)), path_(std::move(path)) {
  if (!object.is_object()) {
    fail("{}: {} must be a table, got {}", subject_, path_.empty() ? "the whole" : path_,
         object.dump());
  }
}

void Fields::reject(const std::string& key, const json& value, const std::string& rule) const {
  fail("{}: {} must be {}, got {}", subject_, name(key), rule, value.dump());
}

const json* Fields::find(const char* key) const {
  known_.insert(key);
  const auto found = object_->find(key);
  return found == object_->end() ? nullptr : &*found;
}

int64_t Fields::integer(const char* key, const json& value) const {
  // Numbers above int64_t are unsigned in nlohmann's library, and would wrap.
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  if (!fits) reject(key, value, "an integer");
  return value.get<int64_t>();
}

double Fields::number(const char* key, const json& value) const {
  if (!value.is_number()) reject(key, value, "a number");
  return value.get<double>();
}

void Fields::operator()(const char* key, int64_t& field) const {
  if (const json* value = find(key)) field = integer(key, *value);
}

void Fields::operator()(const char* key, double& field) const {
  if (const json* value = find(key)) field = number(key, *value);
}

void Fields::operator()(const char* key, bool& field) const {
  const json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_boolean()) reject(key, *value, "true or false");
  field = value->get<bool>();
}

void Fields::operator()(const char* key, std::string& field) const {
  const json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_string()) reject(key, *value, "a text");
  field = value->get<std::string>();
}

void Fields::operator()(const char* key, std::array<int64_t, 2>& field) const {
  const json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_array()) {
    field.fill(integer(key, *value));
    return;
  }
  if (value->size() != 2) reject(key, *value, "one number, or height and width");
  for (int i = 0; i < 2; ++i) field[i] = integer(key, (*value)[i]);
}

void Fields::operator()(const char* key, std::array<double, 2>& field) const {
  const json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_array()) {
    field.fill(number(key, *value));
    return;
  }
  if (value->size() != 2) reject(key, *value, "a list of two numbers");
  for (int i = 0; i < 2; ++i) field[i] = number(key, (*value)[i]);
}

void Fields::operator()(const char* key, std::vector<int64_t>& field) const {
  const json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_array()) reject(key, *value, "a list of whole numbers");
  field.clear();
  for (const json& cell : *value) field.push_back(integer(key, cell));
}

void Fields::operator()(const char* key, std::vector<std::string>& field) const {
  const json* value = find(key);
  if (value == nullptr) return;
  const auto is_string = [](const json& cell) { return cell.is_string(); };
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_string)) {
    reject(key, *value, "a list of texts");
  }
  field = value->get<std::vector<std::string>>();
}

Fields Fields::table(const char* key) const {
  const json* value = find(key);
  return Fields(value == nullptr ? empty_object() : *value, subject_, name(key));
}

std::vector<Fields> Fields::tables(const char* key) const {
  std::vector<Fields> all;
  const json* value = find(key);
  if (value == nullptr) return all;
  if (!value->is_array()) reject(key, *value, "a list of tables");
  for (size_t i = 0; i < value->size(); ++i) {
    all.emplace_back((*value)[i], subject_, fmt::format("{}[{}]", name(key), i));
  }
  return all;
}

void Fields::refuse_unknown() const {
  for (const auto& [key, value] : object_->items()) {
    if (known_.contains(key)) continue;
    const std::vector<std::string> keys(known_.begin(), known_.end());
    const std::string meant = did_you_mean(key, keys);
    fail("{}: unknown key '{}'{} {} keys here are {}", subject_, name(key),
         meant.empty() ? ";" : meant, meant.empty() ? "the" : "The", fmt::join(keys, ", "));
  }
}

json parse_json(const std::string& text, const std::string& origin) {
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    check(depth <= 64, "{} is nested too deeply", origin);
    return true;
  };
  try {
    return json::parse(text, shallow);
  } catch (const json::exception& error) {
    fail("{} is not JSON: {}", origin, error.what());
  }
}

}  // namespace qna::format
