// Our own model as a subject of the model benchmark, by the same protocol as the peers.
#pragma once

#include <cstdint>
#include <string>

namespace qna::bench {

struct WorkerOptions {
  std::string weights;  // safetensors
  std::string check;    // images x and logits y that must come out; may be empty
  int64_t batch = 1;
  int64_t height = 224;
  int64_t width = 224;
  int threads = 1;
  bool train = false;  // steps of training instead of forward passes
};

// Answers on stdout until stdin ends.
void run_worker(const WorkerOptions& options);

}  // namespace qna::bench
