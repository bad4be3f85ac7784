// Reads the fields of a JSON object into variables and refuses what nobody asked for: a mistyped
// key is an error, never ignored. Messages begin with a subject, such as "recipe", and name the
// field, the rule and the value.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "qna/base/error.h"

namespace qna::format {

template <typename Enum>
struct EnumName {
  Enum value;
  const char* name;
};

template <typename Enum, size_t n>
const char* name_of(Enum value, const EnumName<Enum> (&names)[n]) {
  for (const EnumName<Enum>& row : names) {
    if (row.value == value) return row.name;
  }
  fail("a value of an enumeration has no name");
}

class Fields {
 public:
  // path: of the object inside the whole, for messages; empty: it is the whole. The object must
  // outlive the fields.
  Fields(const nlohmann::json& object, std::string subject, std::string path = "");

  // What is left out keeps its value.
  void operator()(const char* key, int64_t& field) const;
  void operator()(const char* key, double& field) const;
  void operator()(const char* key, bool& field) const;
  void operator()(const char* key, std::string& field) const;
  // Two numbers that are the same may be written as one.
  void operator()(const char* key, std::array<int64_t, 2>& field) const;
  void operator()(const char* key, std::array<double, 2>& field) const;
  void operator()(const char* key, std::vector<std::string>& field) const;
  void operator()(const char* key, std::vector<int64_t>& field) const;

  template <typename Enum, size_t n>
  void choose(const char* key, Enum& field, const EnumName<Enum> (&names)[n]) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return;
    std::string all;
    for (const auto& [candidate, text] : names) {
      if (*value == text) {
        field = candidate;
        return;
      }
      all += all.empty() ? text : std::string(", ") + text;
    }
    reject(key, *value, "one of " + all);
  }

  // nullptr where there is none; the key counts as asked for.
  const nlohmann::json* find(const char* key) const;
  // An object inside; an empty one where there is none.
  Fields table(const char* key) const;
  // The objects of a list inside; none where there is no list.
  std::vector<Fields> tables(const char* key) const;

  // Call it when everything was asked for.
  void refuse_unknown() const;

  std::string name(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  const nlohmann::json& object() const { return *object_; }

 private:
  [[noreturn]] void reject(const std::string& key, const nlohmann::json& value,
                           const std::string& rule) const;
  int64_t integer(const char* key, const nlohmann::json& value) const;
  double number(const char* key, const nlohmann::json& value) const;

  const nlohmann::json* object_;
  std::string subject_;
  std::string path_;
  mutable std::set<std::string> known_;
};

// Writes what Fields reads, so that a struct names its fields once, in a function that either
// visits:
//   void visit_stage(auto& stage, const auto& visit) {
//     visit("blocks", stage.blocks);
//     visit.choose("mixer", stage.mixer, kMixers);
//   }
class FieldWriter {
 public:
  explicit FieldWriter(nlohmann::json& object) : object_(object) {}

  void operator()(const char* key, const auto& field) const { object_[key] = field; }
  void operator()(const char* key, const std::array<int64_t, 2>& field) const {
    object_[key] = field[0] == field[1] ? nlohmann::json(field[0]) : nlohmann::json(field);
  }
  template <typename Enum, size_t n>
  void choose(const char* key, Enum field, const EnumName<Enum> (&names)[n]) const {
    object_[key] = name_of(field, names);
  }

 private:
  nlohmann::json& object_;
};

// A JSON text of at most 64 levels: what prints or destroys a value goes down into it, and a stack
// is not endless. Throws qna::Error that begins with `origin`.
nlohmann::json parse_json(const std::string& text, const std::string& origin);

}  // namespace qna::format
