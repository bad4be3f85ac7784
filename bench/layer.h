// `qna bench layer`: the QnA layer beside what a user would pick instead, in one run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace qna::bench {

// One shape to measure.
struct LayerCase {
  std::string label = "";  // where the shape comes from; may be empty
  int64_t kernel = 3;
  int64_t batch = 1;
  int64_t height = 256;
  int64_t width = 256;
  int64_t in_features = 64;
  int64_t dim = 64;
  int64_t heads = 8;
  int64_t queries = 2;
  int64_t stride = 1;
};

struct LayerBenchOptions {
  std::vector<LayerCase> cases;
  std::vector<std::string> passes = {"forward", "train"};
  std::vector<int64_t> threads = {2};
  std::vector<std::string> peers = {"composite", "conv", "gemm"};
  std::string dtype = "float32";
  int rounds = 7;
};

// Peers: `composite`, the paper's algorithm in ATen operators; `conv`, a dense convolution of the
// same window, channels last; `gemm`, the layer's matrix products alone (two, or six in training)
// by LibTorch or, if that is faster, forward by our own implementation.
struct LayerResult {
  LayerCase shape;
  std::string subject;
  std::string pass;
  int64_t threads;
  std::string implementation;
  double min_ms, median_ms, spread;
  int64_t peak_bytes;  // allocated during the run, the output included
  // forward: peak without the output; train: kept between forward and backward
  int64_t extra_bytes;
};

// The layer shapes of the paper's models at 224 px: every QnA block and down-sampling block.
std::vector<LayerCase> model_cases(int64_t batch);

// Throws qna::Error if an answer differs from the composite form's.
std::vector<LayerResult> run_layer_bench(const LayerBenchOptions& options);

std::string layer_table(const std::vector<LayerResult>& results, const std::string& dtype);
std::string layer_csv(const std::vector<LayerResult>& results, const std::string& dtype);

}  // namespace qna::bench
