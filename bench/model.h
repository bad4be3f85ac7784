// `qna bench model`: whole networks beside what a user could run instead, in one run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace qna::bench {

struct ModelBenchOptions {
  std::vector<std::string> models;  // names of the registry
  std::vector<int64_t> batches = {1, 8};
  std::vector<std::array<int64_t, 2>> images = {};  // height, width; empty: each model's own
  int threads = 2;
  // Steps of training (forward, cross entropy, backward, AdamW) instead of inference.
  bool train = false;
  // eager, compiled, onnxruntime, openvino: the same network; timm: other networks. For training
  // only eager and compiled.
  std::vector<std::string> peers;
  int rounds = 7;
  std::string peers_folder;  // bench/peers of the sources
  std::string program;       // this program, which is a subject too
};

struct ModelResult {
  std::string subject;
  std::string model;
  int64_t batch;
  std::array<int64_t, 2> image;  // height, width
  int threads;
  double images_per_second = 0;     // median over the rounds
  double slowest = 0, fastest = 0;  // of the rounds
  int64_t peak_bytes = 0;           // resident memory above that of the bare program
  std::string version = {};
  std::string error = {};  // why there is no number; empty if there is one
};

// bench/peers of the sources this program was built from.
std::string default_peers_folder();

// Subjects take turns. All that run a QnA-ViT must give the logits that ours gives.
std::vector<ModelResult> run_model_bench(const ModelBenchOptions& options);

std::string model_table(const std::vector<ModelResult>& results);
std::string model_csv(const std::vector<ModelResult>& results);

}  // namespace qna::bench
