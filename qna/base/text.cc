#include "qna/base/text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>

namespace qna {
namespace {

// Letters to change, add, leave out or exchange with their neighbour (Damerau's distance), capitals
// or not.
size_t distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  };
  std::vector<size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + !same(a[i - 1], b[j - 1])});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = last;
    last = row;
  }
  return last[b.size()];
}

}  // namespace

std::string in_brackets(std::span<const int64_t> shape) {
  constexpr size_t kLongest = 16;
  const auto shown = shape.first(std::min(shape.size(), kLongest));
  return fmt::format("[{}{}]", fmt::join(shown, ", "), shape.size() > kLongest ? ", ..." : "");
}

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t i = static_cast<int64_t>(text.size()) - 3; i > 0; i -= 3)
    text.insert(static_cast<size_t>(i), 1, ',');
  return text;
}

std::string nearest(std::string_view typed, std::span<const std::string> words) {
  constexpr size_t kLongest = 100;  // nobody mistypes more
  std::string best;
  size_t least = std::max<size_t>(1, typed.size() / 3) + 1;
  if (typed.size() > kLongest) return best;
  for (const std::string& word : words) {
    if (word.size() > kLongest || word == typed) continue;
    // The beginning of a longer word counts as near, such as "augmentation" for "augment".
    const size_t common = std::min(typed.size(), word.size());
    const bool begins = common >= 4 && typed.substr(0, common) == word.substr(0, common);
    const size_t steps = begins ? 1 : distance(typed, word);
    if (steps >= least || steps >= word.size()) continue;
    least = steps;
    best = word;
  }
  return best;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string> words) {
  const std::string word = nearest(typed, words);
  return word.empty() ? "" : fmt::format("; did you mean '{}'?", word);
}

}  // namespace qna
