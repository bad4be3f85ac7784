// Errors and the checks at the door. A message names the argument, the rule and the value seen:
//   QnA: stride must be at least 1, got 0
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace qna {

// Thrown for every wrong argument or input by everything but the kernels themselves, which trust
// their callers. The library never prints and never exits.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw Error(fmt::format(message, std::forward<Args>(args)...));
}

template <typename... Args>
void check(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (!condition) fail(message, std::forward<Args>(args)...);
}

}  // namespace qna
