// `qna bench detect`: detectors beside DETR in PyTorch, in one run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/round_robin.h"
#include "bench/serve.h"

namespace qna::bench {

struct DetectBenchOptions {
  std::vector<std::string> models;  // names of models/detectors.h
  std::array<int64_t, 2> image = {320, 320};
  // Steps of training with batches of `train_batch`, detection with single images.
  std::vector<std::string> passes = {"train", "detect"};
  int64_t train_batch = 2;
  int threads = 2;
  bool peer = true;  // DETR on ResNet-50 in PyTorch
  int rounds = 7;
  std::string peers_folder;  // bench/peers of the sources
  std::string program;       // this program, which is a subject too
};

// The subjects are qna-train, detr-train, qna-detect and detr-detect. Those of a pass take turns.
// The peer must give what ours gives with the same weights.
std::vector<ModelResult> run_detect_bench(const DetectBenchOptions& options);

std::string detect_table(const std::vector<ModelResult>& results);

// Our own detector as a subject. Answers on stdout until stdin ends.
void run_detect_worker(const WorkerOptions& options);

}  // namespace qna::bench
