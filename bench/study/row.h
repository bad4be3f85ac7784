// What the cost study measures: one row for every subject, pass and case.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qna::bench::study {

inline constexpr int64_t kHeads = 8, kQueries = 2;

// One shape: a window of kernel x kernel on one map of side x side x dim, as wide out as in.
struct Case {
  int64_t kernel = 7;
  int64_t side = 256;
  int64_t dim = 64;

  auto operator<=>(const Case&) const = default;
  int64_t pixels() const { return side * side; }
};

inline constexpr std::string_view kForward = "forward", kTrain = "train";

struct Row {
  std::string subject;
  std::string pass;  // kForward, or kTrain: forward and backward
  Case shape;
  int threads = 1;
  std::string skipped = {};  // why there are no numbers; empty if there are
  double min_ms = NAN, median_ms = NAN;
  double spread = NAN;  // (90th percentile - min) / median
  int runs = 0;
  // Highest amount allocated during one run beyond what was there before, and that without what was
  // asked for: the answer and, of training, the gradients of the input and of all parameters.
  int64_t peak_bytes = 0, extra_bytes = 0;
  std::string memory = {};   // "counted" in the allocator, or "planned" by a compiler
  double difference = NAN;   // from the answer of its family, as a part of the largest number
  std::string version = {};  // of what it runs on
  std::string machine = {};
  std::string commit = {};

  bool measured() const { return skipped.empty(); }
};

using Rows = std::vector<Row>;

}  // namespace qna::bench::study
