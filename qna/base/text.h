// Numbers as people read them, and words that they mistype.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qna {

// "[2, 3]", cut when long.
std::string in_brackets(std::span<const int64_t> shape);

std::string with_commas(int64_t number);  // 15,715,560

// The one of the words that was probably meant; empty: none is near enough.
std::string nearest(std::string_view typed, std::span<const std::string> words);

// "; did you mean 'epochs'?", or nothing where no word is near.
std::string did_you_mean(std::string_view typed, std::span<const std::string> words);

}  // namespace qna
