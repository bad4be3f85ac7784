#include "bench/serve.h"
#include <torch/utils.h>
#include <torch/version.h>

#include <fmt/format.h>
#include <malloc.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "qna/checkpoint/tensor_bytes.h"
#include "qna/kernels/implementation.h"

namespace qna::bench {
namespace {

// "VmRSS" (now) or "VmHWM" (the highest) of this process.
int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

void reset_peak_resident() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace

int64_t resident_bytes() { return status_bytes("VmRSS"); }

std::optional<double> difference_from_check(
    const WorkerOptions& options,
    const std::function<torch::Tensor(const torch::Tensor&)>& answer) {
  if (options.check.empty()) return std::nullopt;
  const format::SafetensorsFile io(options.check);
  const torch::Tensor expected = checkpoint::tensor_from(io.at("y"), options.check);
  const torch::NoGradGuard no_grad;
  const torch::Tensor got = answer(checkpoint::tensor_from(io.at("x"), options.check));
  return ((got - expected).abs().max() / expected.abs().max()).item<double>();
}

void serve(int64_t base_bytes, std::optional<double> difference, const std::function<void()>& run) {
  const auto run_batches = [&](int batches) {
    for (int i = 0; i < batches; ++i) run();
  };
  run_batches(3);
  reset_peak_resident();
  run_batches(2);
  nlohmann::json ready = {
      {"ready", true},
      {"version",
       fmt::format("{} kernels, torch {}", kernels::chosen_implementation().name, TORCH_VERSION)},
      {"max_difference", nullptr},
      {"base_bytes", base_bytes},
      {"peak_bytes", status_bytes("VmHWM") - base_bytes}};
  if (difference.has_value()) ready["max_difference"] = *difference;
  std::cout << ready.dump() << std::endl;

  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    const int batches = line == "run" ? 1 : std::stoi(line.substr(line.find(' ') + 1));
    const auto start = std::chrono::steady_clock::now();
    run_batches(batches);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::cout << nlohmann::json{{"seconds", seconds.count()}}.dump() << std::endl;
  }
}

}  // namespace qna::bench
