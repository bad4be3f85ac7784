#include "bench/worker.h"

#include <malloc.h>
#include <torch/types.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/train_step.h"
#include "qna/base/error.h"
#include "qna/checkpoint/model_file.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/kernels/implementation.h"

namespace qna::bench {
namespace {

// "VmRSS" (now) or "VmHWM" (the highest) of this process.
int64_t resident_bytes(const std::string& key) {
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

void run_worker(const WorkerOptions& options) {
  at::set_num_threads(options.threads);
  const c10::InferenceMode inference(!options.train);
  const int64_t base_bytes = resident_bytes("VmRSS");
  checkpoint::LoadedModel loaded = checkpoint::load_model(options.weights);
  const models::QnAViTConfig& config = loaded.model->config();
  torch::Tensor x =
      torch::randn({options.batch, options.height, options.width, config.in_channels});

  nlohmann::json ready = {
      {"ready", true},
      {"version",
       fmt::format("{} kernels, torch {}", kernels::chosen_implementation().name, TORCH_VERSION)},
      {"max_difference", nullptr},
      {"base_bytes", base_bytes}};
  if (!options.check.empty()) {
    const format::SafetensorsFile io(options.check);
    const torch::Tensor expected = checkpoint::tensor_from(io.at("y"), options.check);
    const torch::NoGradGuard no_grad;
    loaded.model->eval();
    const torch::Tensor got =
        loaded.model->forward(checkpoint::tensor_from(io.at("x"), options.check));
    ready["max_difference"] = ((got - expected).abs().max() / expected.abs().max()).item<double>();
  }
  std::optional<TrainStep> train_step;
  if (options.train) train_step.emplace(loaded.model);
  const auto run = [&](int batches) {
    for (int i = 0; i < batches; ++i) {
      if (options.train) {
        train_step->run(x);
      } else {
        loaded.model->forward(x);
      }
    }
  };
  run(3);
  reset_peak_resident();
  run(2);
  ready["peak_bytes"] = resident_bytes("VmHWM") - base_bytes;
  std::cout << ready.dump() << std::endl;

  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    const int batches = line == "run" ? 1 : std::stoi(line.substr(line.find(' ') + 1));
    const auto start = std::chrono::steady_clock::now();
    run(batches);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::cout << nlohmann::json{{"seconds", seconds.count()}}.dump() << std::endl;
  }
}

}  // namespace qna::bench
