// Metrics as people read them.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace qna::report {

// Two decimals, as percent and decibels need; four below 1, as an error of pixels needs.
inline std::string metric_text(double value) {
  return fmt::format("{:.{}f}", value, std::abs(value) < 1 ? 4 : 2);
}

}  // namespace qna::report
