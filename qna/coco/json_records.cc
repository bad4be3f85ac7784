#include "qna/coco/json_records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "qna/format/text.h"

namespace qna::coco {
namespace {

using nlohmann::json;
using Kind = Value::Kind;

constexpr int kDeepest = 64;
constexpr double kExactIntegers = 0x1p53;  // below, a double holds every whole number

std::string describe(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
      return "nothing";
    case Kind::kNull:
      return "null";
    case Kind::kBoolean:
      return value.integer != 0 ? "true" : "false";
    case Kind::kInteger:
      return fmt::format("{}", value.integer);
    case Kind::kNumber:
      return fmt::format("{}", value.number);
    case Kind::kText:
      return format::in_quotes(value.text);
    case Kind::kList: {
      const auto shown = std::span(value.numbers).first(std::min<size_t>(value.count, 4));
      return fmt::format("[{}{}]", fmt::join(shown, ", "), value.count > 4 ? ", ..." : "");
    }
    case Kind::kMixedList:
      return "a list of other things than numbers";
    case Kind::kObject:
      return "an object";
  }
  return "";
}

}  // namespace

std::string place(const std::string& origin, const char* list, int64_t index, int64_t id) {
  return fmt::format("{}: {}[{}] (id {})", origin, list, index, id);
}

Record::Record(const std::string& origin, const char* list, std::span<const char* const> fields)
    : origin_(origin), list_(list), fields_(fields), values_(fields.size()) {}

std::string Record::where() const {
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (std::string_view(fields_[i]) == "id" && values_[i].kind == Kind::kInteger) {
      return place(origin_, list_, index_, values_[i].integer);
    }
  }
  return fmt::format("{}: {}[{}]", origin_, list_, index_);
}

void Record::reject_value(size_t field, const char* rule) const {
  reject("{} must be {}, got {}", fields_[field], rule, describe(values_[field]));
}

bool Record::has(size_t field) const { return values_[field].kind != Kind::kMissing; }

const Value& Record::at(size_t field) const {
  if (!has(field)) reject("{} is missing", fields_[field]);
  return values_[field];
}

int64_t Record::integer(size_t field) const {
  const Value& value = at(field);
  if (value.kind == Kind::kInteger) return value.integer;
  const bool whole = value.kind == Kind::kNumber && std::abs(value.number) <= kExactIntegers &&
                     value.number == std::trunc(value.number);
  if (!whole) reject_value(field, "an integer of 64 bits");
  return static_cast<int64_t>(value.number);
}

double Record::number(size_t field) const {
  const Value& value = at(field);
  if (value.kind != Kind::kInteger && value.kind != Kind::kNumber) reject_value(field, "a number");
  return value.number;
}

bool Record::flag(size_t field) const {
  const Value& value = at(field);
  const bool good = value.kind == Kind::kBoolean || value.kind == Kind::kInteger;
  if (!good || value.integer < 0 || value.integer > 1) reject_value(field, "0 or 1");
  return value.integer == 1;
}

const std::string& Record::text(size_t field) const {
  const Value& value = at(field);
  if (value.kind != Kind::kText) reject_value(field, "a text");
  return value.text;
}

Box Record::box(size_t field) const {
  const Value& value = at(field);
  if (value.kind != Kind::kList || value.count != 4) {
    reject_value(field, "the four numbers [x, y, width, height]");
  }
  const auto& [x, y, width, height] = value.numbers;
  if (width < 0 || height < 0) reject_value(field, "a box whose width and height are not negative");
  return {x, y, width, height};
}

// Receives the parser's events. `depth_` counts the objects and lists that are open; a list of
// records is open at `list_depth_`, a record one below, and a list in one of its fields below that.
class RecordReader : public json::json_sax_t {
 public:
  RecordReader(const std::string& origin, std::span<const RecordList> lists, bool bare)
      : origin_(origin), lists_(lists), list_depth_(bare ? 1 : 2), seen_(lists.size()) {
    for (const RecordList& list : lists) records_.emplace_back(origin, list.key, list.fields);
    if (bare) select(0);
  }

  void check_complete() const {
    for (size_t i = 0; i < lists_.size(); ++i) {
      check(seen_[i], "{}: the list {} is missing", origin_, lists_[i].key);
    }
  }

  bool null() override { return scalar({.kind = Kind::kNull}); }
  bool boolean(bool value) override { return scalar({.kind = Kind::kBoolean, .integer = value}); }

  bool number_integer(int64_t value) override {
    if (is_skipped()) return true;  // the coordinates of segmentations: most of a file
    return scalar({.kind = Kind::kInteger, .integer = value, .number = static_cast<double>(value)});
  }

  bool number_unsigned(uint64_t value) override {
    if (std::in_range<int64_t>(value)) return number_integer(static_cast<int64_t>(value));
    return number_float(static_cast<double>(value), "");
  }

  bool number_float(double value, const std::string&) override {
    if (is_skipped()) return true;
    return scalar({.kind = Kind::kNumber, .number = value});
  }

  bool string(std::string& value) override {
    if (is_skipped()) return true;
    return scalar({.kind = Kind::kText, .text = std::move(value)});
  }

  bool binary(json::binary_t&) override { return true; }  // JSON texts have none

  bool start_object(size_t) override {
    check(depth_ > 0 || !is_bare(), "{}: must be a list of objects, got one object", origin_);
    if (record_ != nullptr && depth_ == list_depth_) {
      record_->index_++;
      for (Value& value : record_->values_) value.kind = Kind::kMissing;
    } else if (depth_ > 0) {
      scalar({.kind = Kind::kObject});
    }
    return open();
  }

  bool key(std::string& name) override {
    if (depth_ == 1 && !is_bare()) {
      record_ = nullptr;
      for (size_t i = 0; i < lists_.size(); ++i) {
        if (name == lists_[i].key) select(i);
      }
    } else if (record_ != nullptr && depth_ == list_depth_ + 1) {
      value_ = nullptr;
      for (size_t i = 0; i < record_->fields_.size(); ++i) {
        if (name == record_->fields_[i]) value_ = &record_->values_[i];
      }
      if (value_ != nullptr && value_->kind != Kind::kMissing) {
        record_->reject("{} comes twice", name);
      }
    }
    return true;
  }

  bool end_object() override {
    depth_--;
    if (record_ != nullptr && depth_ == list_depth_) lists_[selected_].take(*record_);
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ == 0 && !is_bare()) {
      fail("{}: must be an object with the lists {}, got a list", origin_, names());
    }
    if (wanted()) {
      value_->kind = Kind::kList;
      value_->count = 0;
    } else if (record_ == nullptr || depth_ != list_depth_ - 1) {
      scalar({.kind = Kind::kMixedList});
    }
    return open();
  }

  bool end_array() override {
    depth_--;
    return true;
  }

  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    const bool inside = record_ != nullptr && depth_ > list_depth_;
    fail("{}: not JSON: {}", inside ? record_->where() : origin_, format::in_quotes(error.what()));
  }

 private:
  bool is_bare() const { return list_depth_ == 1; }

  std::string names() const {
    std::vector<const char*> all;
    for (const RecordList& list : lists_) all.push_back(list.key);
    return fmt::format("{}", fmt::join(all, ", "));
  }

  void select(size_t list) {
    check(!seen_[list], "{}: the list {} comes twice", origin_, lists_[list].key);
    seen_[list] = true;
    selected_ = list;
    record_ = &records_[list];
  }

  bool open() {
    check(++depth_ <= kDeepest, "{}: nested too deeply: more than {} levels", origin_, kDeepest);
    return true;
  }

  // Nothing the parser could find here matters.
  bool is_skipped() const {
    return record_ == nullptr ? depth_ > 0 : value_ == nullptr && depth_ > list_depth_;
  }

  // The parser is at the value of a field that somebody asked for.
  bool wanted() const {
    return record_ != nullptr && value_ != nullptr && depth_ == list_depth_ + 1;
  }

  // Everything that is not the beginning of what was expected here comes this way.
  bool scalar(Value&& value) {
    if (depth_ == 0) {
      fail("{}: must be {}, got {}", origin_,
           is_bare() ? "a list of objects" : "an object with the lists " + names(),
           describe(value));
    }
    if (is_skipped() || depth_ > list_depth_ + 2) return true;
    if (depth_ == list_depth_ - 1) {
      fail("{}: {} must be a list, got {}", origin_, lists_[selected_].key, describe(value));
    }
    if (depth_ == list_depth_) {
      fail("{}: {}[{}] must be an object, got {}", origin_, lists_[selected_].key,
           record_->index_ + 1, value.kind == Kind::kMixedList ? "a list" : describe(value));
    }
    if (depth_ == list_depth_ + 1) {
      *value_ = std::move(value);
    } else if (value.kind != Kind::kInteger && value.kind != Kind::kNumber) {
      if (value_->kind == Kind::kList) value_->kind = Kind::kMixedList;
    } else if (value_->kind == Kind::kList) {
      if (value_->count < 4) value_->numbers[value_->count] = value.number;
      value_->count++;
    }
    return true;
  }

  const std::string& origin_;
  const std::span<const RecordList> lists_;
  const int list_depth_;
  std::vector<bool> seen_;
  std::vector<Record> records_;  // one per list, used again for every object
  size_t selected_ = 0;
  Record* record_ = nullptr;  // of the list that is being read; nullptr: something else is
  Value* value_ = nullptr;    // of the field that is being read; nullptr: nobody asked for it
  int depth_ = 0;
};

namespace {

void parse(std::string_view text, const std::string& origin, std::span<const RecordList> lists,
           bool bare) {
  // The parser takes a zero byte for the end, whatever follows.
  check(text.find('\0') == text.npos, "{}: holds a zero byte", origin);
  RecordReader reader(origin, lists, bare);
  json::sax_parse(text.data(), text.data() + text.size(), &reader);
  reader.check_complete();
}

}  // namespace

void parse_record_lists(std::string_view text, const std::string& origin,
                        std::span<const RecordList> lists) {
  parse(text, origin, lists, /*bare=*/false);
}

void parse_record_list(std::string_view text, const std::string& origin, const RecordList& list) {
  parse(text, origin, {&list, 1}, /*bare=*/true);
}

}  // namespace qna::coco
