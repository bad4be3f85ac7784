// What was claimed of QnA's cost, beside what was measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/study/row.h"

namespace qna::bench::study {

struct Claim {
  std::string text;
  std::string claimed;          // "paper: at least 5x"
  std::string measured;         // "8.1x (k = 3) to 44.0x (k = 21)", or "-"
  std::optional<bool> holds{};  // nothing: not measured
};

std::vector<Claim> claims(const Rows& rows);

}  // namespace qna::bench::study
