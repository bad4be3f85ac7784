// `qna bench model`: whole networks beside what a user could run instead, in one run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/round_robin.h"

namespace qna::bench {

struct ModelBenchOptions {
  std::vector<std::string> models;  // names of the registry
  std::vector<int64_t> batches = {1, 8};
  std::vector<std::array<int64_t, 2>> images = {};  // height, width; empty: each model's own
  int threads = 2;
  // Steps of training (forward, cross entropy, backward, AdamW) instead of inference.
  bool train = false;
  // eager, compiled, onnxruntime, openvino: the same network by the paper's algorithm;
  // python: by our modules and our Python package; rivals: other networks, in PyTorch and in
  // OpenVINO; bfloat16: ours with weights in 16 bits. For training only eager, compiled and python.
  std::vector<std::string> peers;
  int rounds = 7;
  std::string peers_folder;  // bench/peers of the sources
  std::string program;       // this program, which is a subject too
};

// Subjects take turns. All that run a QnA-ViT must give the logits that ours gives.
std::vector<ModelResult> run_model_bench(const ModelBenchOptions& options);

std::string model_table(const std::vector<ModelResult>& results);

}  // namespace qna::bench
