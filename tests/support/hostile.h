// Damaged input: what a reader says of it, and many ways to damage it.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "qna/base/error.h"

namespace qna::testing {

// What the qna::Error says that `action` throws; empty when it throws none. Other exceptions pass,
// and so fail the test.
inline std::string complaint_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Calls `use` with copies of `content` in which one to four bytes are changed, half of them by a
// single bit. Always the same copies.
inline void with_random_damage(std::string_view content, int rounds,
                               const std::function<void(std::string_view)>& use) {
  std::mt19937 random(20220427);
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  std::string damaged(content);
  for (int round = 0; round < rounds; ++round) {
    std::vector<size_t> places(1 + below(4));
    for (size_t& place : places) {
      place = below(content.size());
      damaged[place] =
          static_cast<char>(round % 2 == 0 ? damaged[place] ^ (1 << below(8)) : random());
    }
    use(damaged);
    for (const size_t place : places) damaged[place] = content[place];
  }
}

}  // namespace qna::testing
