// `qna bench loader`: training images per second of one core, beside timm's and torchvision's
// pipeline with Pillow, in one run. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qna/data/augment.h"

namespace qna::bench {

// What both do: decode, random part resized bicubic, flip, RandAugment; then normalise.
inline data::Augment loader_augment(int64_t size) {
  return {.size = {size, size}, .rand_augment = data::RandAugment{}};
}

struct LoaderBenchOptions {
  std::string folder;   // of images
  int64_t size = 224;   // height and width of the result
  int64_t count = 256;  // different images, evenly spread over the folder
  int rounds = 7;
  // How the peer is started, up to its options; empty: no peer.
  std::vector<std::string> peer_command = {};
};

struct LoaderResult {
  std::string subject;
  double images_per_second = 0;     // median over the rounds
  double slowest = 0, fastest = 0;  // of the rounds
  std::string version = {};
};

// Ours first. Subjects take turns of half a second or more.
std::vector<LoaderResult> run_loader_bench(const LoaderBenchOptions& options);

std::string loader_table(const std::vector<LoaderResult>& results);
std::string loader_csv(const std::vector<LoaderResult>& results, const LoaderBenchOptions& options,
                       const std::string& machine, const std::string& commit);

}  // namespace qna::bench
