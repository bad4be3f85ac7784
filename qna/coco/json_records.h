// Long lists of small JSON objects, read one object at a time: COCO's files have hundreds of
// megabytes, most of it segmentations that nobody here needs, so they are never in memory as a
// whole. Files are hostile until checked: every throw is a qna::Error that names the file, the
// object, the rule and the value.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qna/base/error.h"
#include "qna/coco/box.h"
#include "qna/format/mapped_file.h"

namespace qna::coco {

// What a field holds, as far as a field can be of use.
struct Value {
  enum class Kind {
    kMissing,
    kNull,
    kBoolean,
    kInteger,
    kNumber,
    kText,
    kList,
    kMixedList,
    kObject
  };

  Kind kind = Kind::kMissing;
  int64_t integer = 0;                 // of kInteger, and 0 or 1 of kBoolean
  double number = 0;                   // of kInteger and kNumber
  std::string text = {};               // of kText
  std::array<double, 4> numbers = {};  // of kList: the first ones
  int64_t count = 0;                   // of kList: how many there are
};

// One object of a list. Fields are asked for by their place in the list's `fields`.
class Record {
 public:
  Record(const std::string& origin, const char* list, std::span<const char* const> fields);

  int64_t index() const { return index_; }
  bool has(size_t field) const;
  // Whole numbers may be written as 7.0; above 2^53 that would hide digits and is refused.
  int64_t integer(size_t field) const;
  double number(size_t field) const;
  bool flag(size_t field) const;  // 0, 1, false or true
  const std::string& text(size_t field) const;
  Box box(size_t field) const;  // finite numbers, no negative size

  // "FILE: annotations[3] (id 17)", where messages about the object begin.
  std::string where() const;

  template <typename... Args>
  [[noreturn]] void reject(fmt::format_string<Args...> rule, Args&&... args) const {
    fail("{}: {}", where(), fmt::format(rule, std::forward<Args>(args)...));
  }

 private:
  friend class RecordReader;

  const Value& at(size_t field) const;
  [[noreturn]] void reject_value(size_t field, const char* rule) const;

  const std::string& origin_;
  const char* list_;
  std::span<const char* const> fields_;
  std::vector<Value> values_;
  int64_t index_ = -1;
};

struct RecordList {
  const char* key;                  // its name in the object around all lists
  std::vector<const char*> fields;  // what is kept; all else is skipped
  std::function<void(const Record&)> take;
};

// An object that has all of these lists; what else it has is skipped. `origin` is the file's name.
void parse_record_lists(std::string_view text, const std::string& origin,
                        std::span<const RecordList> lists);

// A list and nothing around it; `list.key` is what messages call it.
void parse_record_list(std::string_view text, const std::string& origin, const RecordList& list);

// The text of a whole file; it lives as long as the mapping.
inline std::string_view text_of(const format::MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// "FILE: annotations[3] (id 17)", for messages about an object after it was read.
std::string place(const std::string& origin, const char* list, int64_t index, int64_t id);

}  // namespace qna::coco
