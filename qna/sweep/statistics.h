// Whether rows of few runs differ, in numbers and in words.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "qna/sweep/sweep.h"

namespace qna::sweep {

struct Statistics {
  int64_t count = 0;
  double mean = kNone;       // of none: not a number
  double deviation = kNone;  // standard deviation of the sample; of fewer than two: not a number
};
Statistics statistics(std::span<const double> values);

// No verdict from fewer runs.
inline constexpr int64_t kLeastSeeds = 3;

enum class Comparison { kTooFew, kSame, kHigher, kLower };

// Of `a` beside `b`. They differ where the difference of the means is larger than both standard
// deviations and than what chance makes of it in 95 of 100 cases (Welch's t).
Comparison compare(const Statistics& a, const Statistics& b);

// "+0.82", with "no difference" behind it where it is smaller than the spread.
std::string difference_text(const Statistics& a, const Statistics& b);

// "confirmed", "refuted", "no difference" or "open", with the numbers behind it.
struct Verdict {
  std::string word;
  std::string why;
};
Verdict judge(const Claim& claim, const Statistics& better, const Statistics& than);

}  // namespace qna::sweep
