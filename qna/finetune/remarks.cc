#include "qna/finetune/remarks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "qna/base/text.h"
#include "qna/format/text.h"

namespace qna::finetune {
namespace {

constexpr size_t kRows = 12;          // of classes
constexpr int64_t kFew = 5;           // images of a class
constexpr int64_t kUneven = 10;       // times as many of one class as of another
constexpr int64_t kTinySide = 32;     // pixels
constexpr int64_t kFewMeasured = 50;  // images to measure on

bool has_boxes(const Survey& s) { return s.kind == config::Kind::kDetector; }
const char* counted(const Survey& s) { return has_boxes(s) ? "boxes" : "pictures"; }

// Places of the classes, those with most to learn from first.
std::vector<size_t> by_count(const Survey& s) {
  std::vector<size_t> order(s.classes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return s.train.per_class[i]; });
  return order;
}

std::string split_text(const SplitCount& count, bool boxes) {
  return boxes ? fmt::format("{} pictures with {} boxes", with_commas(count.images),
                             with_commas(count.objects))
               : fmt::format("{} pictures", with_commas(count.images));
}

std::string sizes_text(const ImageFacts& facts) {
  if (facts.smallest == facts.largest) return fmt::format("{} pixels", facts.median);
  return fmt::format("{} to {} pixels, half of them below {}", facts.smallest, facts.largest,
                     facts.median);
}

void add_class_rows(const Survey& s, std::vector<std::string>& lines) {
  const std::vector<size_t> order = by_count(s);
  size_t width = 5;
  for (size_t i = 0; i < std::min(order.size(), kRows); ++i) {
    width = std::max(width, format::printable(s.classes[order[i]]).size());
  }
  width = std::min<size_t>(width, 40);
  for (size_t i = 0; i < order.size(); ++i) {
    if (order.size() > kRows && i + 1 >= kRows && i + 1 < order.size()) {
      if (i + 1 == kRows) lines.push_back(fmt::format("  ... {} more", order.size() - kRows));
      continue;
    }
    std::string line = fmt::format("  {:{}}  {:>7}", format::printable(s.classes[order[i]]), width,
                                   with_commas(s.train.per_class[order[i]]));
    if (s.val.has_value()) {
      line += fmt::format("  {:>7}", with_commas(s.val->per_class[order[i]]));
    }
    lines.push_back(line);
  }
}

}  // namespace

std::vector<std::string> describe(const Survey& s) {
  std::vector<std::string> lines = {
      fmt::format("found    {} in {}: {} {}", s.layout, s.path, s.classes.size(),
                  s.classes.size() == 1 ? "class" : "classes"),
      fmt::format("train    {}", split_text(s.train, has_boxes(s)))};
  lines.push_back(
      s.val.has_value()
          ? fmt::format("val      {}", split_text(*s.val, has_boxes(s)))
          : std::string("val      none of its own: a part of train is held back to measure on"));
  lines.push_back(fmt::format("sizes    the shorter sides have {}", sizes_text(s.facts)));
  if (!s.facts.broken.empty()) {
    lines.push_back(fmt::format("broken   {} of the {} pictures that were opened, left out: {}",
                                s.facts.broken.size(), s.facts.opened, s.facts.broken.front()));
  }
  if (!s.left_out.empty()) lines.push_back("left out " + s.left_out);
  add_class_rows(s, lines);
  return lines;
}

std::vector<std::string> warnings(const Survey& s) {
  std::vector<std::string> lines;
  const std::vector<size_t> order = by_count(s);
  const int64_t most = s.train.per_class[order.front()];
  std::vector<size_t> few;
  for (const size_t i : order) {
    if (s.train.per_class[i] < kFew) few.push_back(i);
  }
  if (!few.empty()) {
    lines.push_back(
        fmt::format("{} class{} fewer than {} {}, such as '{}' with {}: that is hardly enough to "
                    "learn from. Add "
                    "some, or take the class away",
                    few.size(), few.size() == 1 ? " has" : "es have", kFew, counted(s),
                    s.classes[few.back()], s.train.per_class[few.back()]));
  }
  const int64_t least = s.train.per_class[order.back()];
  if (most > kUneven * std::max<int64_t>(1, least)) {
    lines.push_back(
        fmt::format("'{}' has {} {} and '{}' {}: the first will be guessed too often. More of the "
                    "small classes "
                    "helps most; look at the numbers of each class, 'qna eval' prints them",
                    s.classes[order.front()], most, counted(s), s.classes[order.back()], least));
  }
  if (s.duplicates.count > 0) {
    lines.push_back(fmt::format(
        "{} picture{} there twice{}, such as {} and {}: what is measured is too good. "
        "Remove one of each",
        s.duplicates.count, s.duplicates.count == 1 ? " is" : "s are",
        s.val.has_value() ? ", in train and in val" : "", s.duplicates.one, s.duplicates.other));
  }
  if (s.facts.median < kTinySide) {
    lines.push_back(
        fmt::format("half of the pictures have less than {} pixels in their shorter side: little "
                    "can be seen in "
                    "them. Take larger ones if there are such",
                    kTinySide));
  }
  if (s.val.has_value() && s.val->images < kFewMeasured) {
    lines.push_back(fmt::format(
        "there are {} pictures to measure on: each of them counts {:.1f} %. Small differences mean "
        "nothing",
        s.val->images, 100.0 / static_cast<double>(std::max<int64_t>(1, s.val->images))));
  }
  return lines;
}

}  // namespace qna::finetune
