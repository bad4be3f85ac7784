// Files that are almost right: a seed with some changes.
#pragma once

#include <random>
#include <string>
#include <vector>

namespace qna::fuzz {

// One to about eight changes: bits, bytes, numbers at their limits, pieces cut out, doubled or
// moved, pieces of another seed, words of the formats. Files that begin with a length, as
// safetensors do, keep a right one in most cases, so that what lies behind it is reached. The same
// random numbers give the same file.
std::string mutate(const std::vector<std::string>& seeds, std::mt19937_64& random);

}  // namespace qna::fuzz
