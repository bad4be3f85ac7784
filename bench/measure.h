// Timing and memory of one piece of work, fairly: subjects take turns, so that what else the
// machine does meets all of them alike.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace qna::bench {

struct Subject {
  std::string name;
  std::function<void()> run;
};

struct Measurement {
  double min_ms = 0;
  double median_ms = 0;
  double spread = 0;       // (90th percentile - min) / median
  int64_t peak_bytes = 0;  // allocated by LibTorch during one run beyond what was there before
};

// Runs every subject once unmeasured, then `rounds` times in turn (fast ones several times a turn).
std::vector<Measurement> measure(const std::vector<Subject>& subjects, int rounds);

// LibTorch's CPU allocator with a counter. Installed for the whole process by the first call.
void count_allocations();
int64_t allocated_bytes();
// Highest allocated_bytes() since the last start, which returns what is allocated then, without the
// scratch memory that kernels keep between calls.
int64_t start_peak();
int64_t peak_allocated_bytes();

}  // namespace qna::bench
