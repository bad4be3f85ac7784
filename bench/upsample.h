// `qna bench upsample`: QnA as an up-sampling layer beside what a user would pick instead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qna::bench {

struct UpsampleOptions {
  int64_t batch = 1;
  int64_t size = 64;  // side of the map that is up-sampled
  int64_t dim = 64;   // features in and out
  int64_t heads = 8;
  int64_t kernel = 3;
  std::vector<int64_t> factors = {2};
  std::vector<std::string> passes = {"forward", "train"};
  int threads = 2;
  int rounds = 15;
};

// Subjects: `qna`; `bilinear`, bilinear up-sampling and a 3 x 3 convolution; `transposed`, a
// transposed convolution whose window is twice the factor.
struct UpsampleResult {
  std::string subject;
  std::string pass;
  int64_t factor;
  double min_ms, median_ms, spread;
  int64_t peak_bytes;
};

std::vector<UpsampleResult> run_upsample_bench(const UpsampleOptions& options);

std::string upsample_table(const std::vector<UpsampleResult>& results,
                           const UpsampleOptions& options);
std::string upsample_csv(const std::vector<UpsampleResult>& results,
                         const UpsampleOptions& options);

}  // namespace qna::bench
