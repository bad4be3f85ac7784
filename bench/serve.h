// Our own networks as subjects, by the same protocol as the peers: bench/peers/README.md.
#pragma once

#include <torch/types.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace qna::bench {

// What a worker is told on its command line.
struct WorkerOptions {
  std::string weights;  // safetensors
  std::string check;    // a file with images x and the answer y that must come out; may be empty
  int64_t batch = 1;
  int64_t height = 224;
  int64_t width = 224;
  int threads = 1;
  bool train = false;     // steps of training instead of forward passes
  bool modules = false;   // LibTorch's modules instead of the engine
  bool bfloat16 = false;  // the engine with weights in bfloat16
};

// Resident memory of this process now.
int64_t resident_bytes();

// The largest difference of `answer` from the y of options.check, as a part of the largest |y|;
// nothing if there is no such file.
std::optional<double> difference_from_check(
    const WorkerOptions& options, const std::function<torch::Tensor(const torch::Tensor&)>& answer);

// Runs a few times, says that it is ready, and answers on stdout until stdin ends. base_bytes:
// resident_bytes() before the model was there.
void serve(int64_t base_bytes, std::optional<double> difference, const std::function<void()>& run);

}  // namespace qna::bench
