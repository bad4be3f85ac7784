#include <charconv>
#include <cmath>
#include <pugixml.hpp>

#include "qna/base/error.h"
#include "qna/coco/voc.h"
#include "qna/format/text.h"

namespace qna::coco {
namespace {

// A file of VOC has a few kilobytes. What pugixml builds of a text is some ten times as large.
constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr double kLargest = 1e9;  // of any number in a file

// An element and what to call it in messages.
struct Element {
  pugi::xml_node node;
  std::string where;

  template <typename... Args>
  [[noreturn]] void reject(fmt::format_string<Args...> rule, Args&&... args) const {
    fail("{}: {}", where, fmt::format(rule, std::forward<Args>(args)...));
  }

  bool has(const char* name) const { return !node.child(name).empty(); }

  Element child(const char* name) const {
    const pugi::xml_node found = node.child(name);
    if (found.empty()) reject("{} is missing", name);
    if (!found.next_sibling(name).empty()) reject("{} comes twice", name);
    return {found, where};
  }

  std::string text(const char* name) const {
    std::string_view text = child(name).node.text().get();
    constexpr std::string_view kSpace = " \t\r\n";
    const size_t first = text.find_first_not_of(kSpace);
    if (first == text.npos) reject("{} is empty", name);
    return std::string(text.substr(first, text.find_last_not_of(kSpace) - first + 1));
  }

  double number(const char* name) const {
    const std::string text = this->text(name);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    // A comparison with NaN fails too.
    if (error != std::errc() || end != text.data() + text.size() ||
        !(std::abs(value) <= kLargest)) {
      reject("{} must be a number of at most {}, got {}", name, kLargest, format::in_quotes(text));
    }
    return value;
  }

  int64_t pixels(const char* name) const {
    const double value = number(name);
    if (value < 0 || value != std::trunc(value)) {
      reject("{} must be a whole number that is not negative, got {}", name, value);
    }
    return static_cast<int64_t>(value);
  }

  bool flag(const char* name) const {
    const double value = has(name) ? number(name) : 0;
    if (value != 0 && value != 1) reject("{} must be 0 or 1, got {}", name, value);
    return value == 1;
  }
};

// "FILE: object[2] ('dog')"
Element named_object(pugi::xml_node node, int64_t index, const std::string& origin) {
  const Element object{node, fmt::format("{}: object[{}]", origin, index)};
  const std::string name = format::in_quotes(object.text("name"));
  return {node, fmt::format("{} ({})", object.where, name)};
}

void add_object(const Element& object, int64_t index, VocImage& image) {
  const Element bounds = object.child("bndbox");
  const double xmin = bounds.number("xmin");
  const double ymin = bounds.number("ymin");
  const double xmax = bounds.number("xmax");
  const double ymax = bounds.number("ymax");
  const std::string corners = fmt::format("[{}, {}, {}, {}]", xmin, ymin, xmax, ymax);
  if (xmin == xmax && ymin == ymax) {
    image.points.push_back(fmt::format("{}: the box is a point, {}", object.where, corners));
    return;
  }
  if (xmax < xmin || ymax < ymin) {
    object.reject("bndbox must have xmax at least xmin and ymax at least ymin, got {}", corners);
  }
  image.objects.push_back({.index = index,
                           .category = object.text("name"),
                           .box = {xmin - 1, ymin - 1, xmax - xmin + 1, ymax - ymin + 1},
                           .difficult = object.flag("difficult")});
}

Element root_of(const pugi::xml_document& document, const std::string& origin) {
  const Element whole{document, origin};
  const pugi::xml_node root = document.document_element();
  if (std::string_view(root.name()) != "annotation") {
    whole.reject("the outermost element must be annotation, got {}",
                 format::in_quotes(root.name()));
  }
  return whole.child("annotation");
}

}  // namespace

VocImage parse_voc(std::string_view text, const std::string& origin) {
  check(text.size() <= kMaxBytes, "{}: a VOC file must have at most {} bytes, got {}", origin,
        kMaxBytes, text.size());
  // The parser takes a zero byte for the end, whatever follows.
  check(text.find('\0') == text.npos, "{}: holds a zero byte", origin);
  check(format::is_utf8(text), "{}: must be UTF-8", origin);
  pugi::xml_document document;
  const pugi::xml_parse_result result =
      document.load_buffer(text.data(), text.size(), pugi::parse_default, pugi::encoding_utf8);
  check(result, "{}: not XML: {} at byte {}", origin, result.description(), result.offset);

  const Element root = root_of(document, origin);
  VocImage image;
  if (root.has("filename")) image.file_name = root.text("filename");
  if (root.has("size")) {
    const Element size = root.child("size");
    image.width = size.pixels("width");
    image.height = size.pixels("height");
  }
  int64_t index = 0;
  for (const pugi::xml_node node : root.node.children("object")) {
    add_object(named_object(node, index, origin), index, image);
    ++index;
  }
  return image;
}

}  // namespace qna::coco
