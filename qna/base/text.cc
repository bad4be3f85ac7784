#include "qna/base/text.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace qna {

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

}  // namespace qna
