// Numbers as people read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace qna {

// "[2, 3]", cut when long.
std::string in_brackets(std::span<const int64_t> shape);

std::string with_commas(int64_t number);  // 15,715,560

}  // namespace qna
