#include "qna/coco/yolo.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include "qna/base/error.h"
#include "qna/coco/json_records.h"
#include "qna/format/text.h"

namespace qna::coco {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTextBytes = size_t{1} << 24;
constexpr int64_t kMostClasses = 100000;

std::string_view without_space(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == text.npos) return "";
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Calls use(line, number), numbers from 1.
void for_each_line(std::string_view text, const std::string& origin,
                   const std::function<void(std::string_view, int64_t)>& use) {
  check(text.size() <= kMaxTextBytes, "{}: the file must have at most {} bytes, got {}", origin,
        kMaxTextBytes, text.size());
  check(format::is_utf8(text), "{}: must be UTF-8", origin);
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    use(text.substr(begin, end - begin), ++number);
    begin = end + 1;
  }
}

std::vector<double> numbers_of(std::string_view line, const std::string& where) {
  std::vector<double> numbers;
  while (!(line = without_space(line)).empty()) {
    const std::string_view word = line.substr(0, line.find_first_of(" \t"));
    double number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    check(error == std::errc() && end == word.data() + word.size() && std::isfinite(number),
          "{} must have numbers only, got {}", where, format::in_quotes(word));
    numbers.push_back(number);
    line.remove_prefix(word.size());
  }
  return numbers;
}

// Of the corners behind the class.
Box outline(const std::vector<double>& numbers) {
  double left = numbers[1], right = left, top = numbers[2], bottom = top;
  for (size_t i = 3; i < numbers.size(); i += 2) {
    left = std::min(left, numbers[i]);
    right = std::max(right, numbers[i]);
    top = std::min(top, numbers[i + 1]);
    bottom = std::max(bottom, numbers[i + 1]);
  }
  return {left, top, right - left, bottom - top};
}

YoloObject object_of(const std::vector<double>& numbers, const std::string& where) {
  check(
      numbers.size() == 5 || (numbers.size() >= 7 && numbers.size() % 2 == 1),
      "{} must have 5 numbers (class, middle x, middle y, width, height), or a class and at least "
      "3 corners, got {} numbers",
      where, numbers.size());
  check(numbers[0] >= 0 && numbers[0] < kMostClasses && numbers[0] == std::trunc(numbers[0]),
        "{}: the class must be a whole number from 0, got {}", where, numbers[0]);
  // A little beyond the image by rounding, or a box that reaches out of it; pixels are a mistake.
  constexpr double kMost = 2;
  for (size_t i = 1; i < numbers.size(); ++i) {
    check(std::abs(numbers[i]) <= kMost,
          "{}: places and sizes must be shares of the picture's sides, from 0 to 1, got {}; pixels "
          "must be divided by its width and height",
          where, numbers[i]);
  }
  YoloObject object{.category = static_cast<int64_t>(numbers[0])};
  if (numbers.size() > 5) {
    object.box = outline(numbers);
    return object;
  }
  check(numbers[3] >= 0 && numbers[4] >= 0, "{}: the size must not be negative, got {} x {}", where,
        numbers[3], numbers[4]);
  object.box = {numbers[1] - numbers[3] / 2, numbers[2] - numbers[4] / 2, numbers[3], numbers[4]};
  return object;
}

// ---- the little of YAML that data.yaml has ----

// Without quotes and without a comment behind.
std::string scalar(std::string_view text) {
  text = without_space(text);
  if (!text.empty() && (text[0] == '"' || text[0] == '\'')) {
    const size_t end = text.find(text[0], 1);
    if (end != text.npos) return std::string(text.substr(1, end - 1));
  }
  const size_t comment = text.find(" #");
  return std::string(without_space(text.substr(0, comment)));
}

// "key: value" at the place of a colon outside quotes; nothing: there is none.
std::optional<std::pair<std::string, std::string_view>> key_and_value(std::string_view text) {
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quote != 0) {
      if (text[i] == quote) quote = 0;
    } else if ((text[i] == '"' || text[i] == '\'') && without_space(text.substr(0, i)).empty()) {
      quote = text[i];
    } else if (text[i] == '#') {
      return std::nullopt;
    } else if (text[i] == ':' &&
               (i + 1 == text.size() || text[i + 1] == ' ' || text[i + 1] == '\r')) {
      return std::pair{scalar(text.substr(0, i)), without_space(text.substr(i + 1))};
    }
  }
  return std::nullopt;
}

class Names {
 public:
  void add(const std::string& name, const std::string& where) {
    add_at(static_cast<int64_t>(names_.size()), name, where);
  }
  void add(const std::string& number, const std::string& name, const std::string& where) {
    int64_t place = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), place);
    check(error == std::errc() && end == number.data() + number.size() && place >= 0 &&
              place < kMostClasses,
          "{}: names must be numbered from 0, got {}", where, format::in_quotes(number));
    add_at(place, name, where);
  }
  // A list in one line: "[cat, 'guinea pig']" or "{0: cat, 1: dog}".
  void add_inline(std::string_view text, const std::string& where) {
    const char close = text[0] == '[' ? ']' : '}';
    const size_t end = text.rfind(close);
    check(end != text.npos, "{}: the list of names has no end, {} is missing", where, close);
    std::string_view rest = text.substr(1, end - 1);
    while (!without_space(rest).empty()) {
      size_t comma = 0;
      for (char quote = 0; comma < rest.size() && (quote != 0 || rest[comma] != ','); ++comma) {
        if (quote != 0 && rest[comma] == quote) {
          quote = 0;
        } else if (quote == 0 && (rest[comma] == '"' || rest[comma] == '\'')) {
          quote = rest[comma];
        }
      }
      const std::string_view item = rest.substr(0, comma);
      const auto pair = close == '}' ? key_and_value(without_space(item)) : std::nullopt;
      if (pair) {
        add(pair->first, scalar(pair->second), where);
      } else {
        check(close == ']', "{}: must have a number before each name, got {}", where,
              format::in_quotes(item));
        add(scalar(item), where);
      }
      rest.remove_prefix(std::min(rest.size(), comma + 1));
    }
  }
  std::vector<std::string> list(const std::string& origin) const {
    std::vector<std::string> names;
    for (const auto& [place, name] : names_) {
      check(place == static_cast<int64_t>(names.size()),
            "{}: names must be numbered without gaps, number {} is missing", origin, names.size());
      names.push_back(name);
    }
    return names;
  }

 private:
  void add_at(int64_t place, const std::string& name, const std::string& where) {
    check(!name.empty(), "{}: the name of class {} is empty", where, place);
    check(names_.emplace(place, name).second, "{}: class {} comes twice", where, place);
  }
  std::map<int64_t, std::string> names_;
};

}  // namespace

std::vector<YoloObject> parse_yolo(std::string_view text, const std::string& origin) {
  std::vector<YoloObject> objects;
  for_each_line(text, origin, [&](std::string_view line, int64_t number) {
    const std::string where = fmt::format("{}: line {}", origin, number);
    const std::vector<double> numbers = numbers_of(line, where);
    if (!numbers.empty()) objects.push_back(object_of(numbers, where));
  });
  return objects;
}

std::vector<YoloObject> read_yolo(const std::string& path) {
  const auto file = format::MappedFile::open(path);
  return parse_yolo(text_of(*file), path);
}

YoloDescription parse_yolo_description(std::string_view text, const std::string& origin) {
  YoloDescription out;
  Names names;
  bool in_names = false;
  std::string open_list, open_where;  // of names, that goes on in the next line
  for_each_line(text, origin, [&](std::string_view line, int64_t number) {
    const std::string where = fmt::format("{}: line {}", origin, number);
    const std::string_view content = without_space(line);
    if (content.empty() || content[0] == '#' || content == "---") return;
    if (!open_list.empty()) {
      open_list += ' ';
      open_list += content.substr(0, content.find(" #"));
      if (content.find(open_list[0] == '[' ? ']' : '}') == content.npos) return;
      names.add_inline(open_list, open_where);
      open_list.clear();
      return;
    }
    const bool indented = line[0] == ' ' || line[0] == '\t';
    const bool item = content.starts_with("- ");
    if (in_names && (indented || item)) {
      const auto pair = item ? std::nullopt : key_and_value(content);
      check(item || pair, "{}: must be '- name' or 'number: name', got {}", where,
            format::in_quotes(content));
      if (pair) {
        names.add(pair->first, scalar(pair->second), where);
      } else {
        names.add(scalar(content.substr(2)), where);
      }
      return;
    }
    if (indented) return;  // of a key that is not read
    in_names = false;
    const auto pair = key_and_value(content);
    if (!pair) return;
    const auto& [key, value] = *pair;
    if (key == "names") {
      const std::string plain = scalar(value);
      in_names = plain.empty() || plain[0] == '#';
      if (in_names) return;
      check(value[0] == '[' || value[0] == '{', "{}: names must be a list, got {}", where,
            format::in_quotes(value));
      if (value.find(value[0] == '[' ? ']' : '}') == value.npos) {
        open_list = value.substr(0, value.find(" #"));
        open_where = where;
        return;
      }
      names.add_inline(value, where);
    } else if (key == "path") {
      out.path = scalar(value);
    } else if (key == "train") {
      out.train = scalar(value);
    } else if (key == "val" || (key == "valid" && out.val.empty())) {
      out.val = scalar(value);
    }
  });
  if (!open_list.empty()) names.add_inline(open_list, open_where);
  out.names = names.list(origin);
  check(!out.names.empty(), "{}: there are no names of classes in it (names: [...])", origin);
  return out;
}

YoloDescription read_yolo_description(const std::string& path) {
  const auto file = format::MappedFile::open(path);
  return parse_yolo_description(text_of(*file), path);
}

std::vector<std::string> find_yolo_names(const std::string& labels) {
  std::error_code ignored;
  fs::path folder = fs::absolute(labels).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  for (int above = 0; above <= 3; ++above) {
    const std::string list = (folder / "classes.txt").string();
    if (fs::is_regular_file(list, ignored)) {
      const auto file = format::MappedFile::open(list);
      std::vector<std::string> names;
      for_each_line(text_of(*file), list, [&](std::string_view line, int64_t) {
        if (!without_space(line).empty()) names.emplace_back(without_space(line));
      });
      check(!names.empty(), "{}: there are no names of classes in it, one per line", list);
      return names;
    }
    const std::string description = (folder / "data.yaml").string();
    if (fs::is_regular_file(description, ignored)) {
      return read_yolo_description(description).names;
    }
    if (!folder.has_relative_path()) break;
    folder = folder.parent_path();
  }
  return {};
}

std::string yolo_labels_of(const std::string& images) {
  fs::path normal = fs::path(images).lexically_normal();
  if (!normal.has_filename()) normal = normal.parent_path();
  std::vector<fs::path> parts(normal.begin(), normal.end());
  const auto found = std::find(parts.rbegin(), parts.rend(), fs::path("images"));
  check(found != parts.rend(),
        "{}: a folder of pictures with YOLO labels must have 'images' in its path, in whose place "
        "'labels' leads to the labels",
        images);
  *found = "labels";
  fs::path labels;
  for (const fs::path& part : parts) labels /= part;
  return labels.string();
}

std::optional<std::string> find_yolo_images(const std::string& root, const std::string& written) {
  std::error_code ignored;
  std::string path = fs::path(written).lexically_normal().string();
  while (!path.empty()) {
    const fs::path part(path);
    if (part.is_relative() && *part.begin() != ".." &&
        fs::is_directory(fs::path(root) / part, ignored)) {
      return path;
    }
    const size_t slash = path.find('/');
    if (slash == std::string::npos) break;
    path = path.substr(slash + 1);
  }
  return std::nullopt;
}

bool is_yolo_folder(const std::string& folder) {
  bool has_labels = false;
  std::error_code error;
  fs::directory_iterator walk(folder, error);
  for (; !error && walk != fs::directory_iterator(); walk.increment(error)) {
    const fs::path ending = walk->path().extension();
    if (ending == ".xml") return false;
    has_labels = has_labels || (ending == ".txt" && walk->path().filename() != "classes.txt");
  }
  return has_labels;
}

}  // namespace qna::coco
