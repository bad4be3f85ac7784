// Whole networks as subjects of a benchmark: each is a process of its own, and they take turns.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace qna::bench {

struct ModelResult {
  std::string subject;
  std::string model;
  int64_t batch;
  std::array<int64_t, 2> image;  // height, width
  int threads = 1;
  double images_per_second = 0;     // median over the rounds
  double slowest = 0, fastest = 0;  // of the rounds
  double macs = 0;                  // multiply-adds of one image; 0: not counted
  int64_t peak_bytes = 0;           // resident memory above that of the bare program
  std::string version = {};
  std::string error = {};  // why there is no number; empty if there is one
};

struct Runner {
  ModelResult result;                // without numbers
  std::vector<std::string> command;  // gets --batch, --threads and --image of the result
};

// Rounds in which every subject has a turn. `what` is shown beside the progress.
std::vector<ModelResult> take_turns(const std::vector<Runner>& runners, int rounds,
                                    const std::string& what);

std::string model_csv(const std::vector<ModelResult>& results);

// "224" or "1536x2048"
std::string size_text(std::array<int64_t, 2> size);

// bench/peers of the sources this program was built from.
std::string default_peers_folder();
// The Python of the peers' environment, and a script of their folder.
std::vector<std::string> python_peer(const std::string& peers_folder, const std::string& script);

}  // namespace qna::bench
