// A subject at work, in a process of its own or, for tests, in this one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/study/problem.h"
#include "bench/study/subjects.h"

namespace qna::bench::study {

class Runner {
 public:
  virtual ~Runner() = default;

  // Makes the layer for this case, compares its answer, counts its memory, and fills these fields
  // of the row. It may say in `skipped` why it cannot do the case. Throws qna::Error if it fails.
  virtual void prepare(const Problem& problem, const std::string& file, Row& row) = 0;

  virtual double seconds() = 0;  // of one run of what was prepared
  virtual void release() = 0;    // forgets what was prepared, and gives its memory back
};

// Blocks of memory above this are the system's again as soon as they are free, in this process and
// in the peers; so several that hold much can live side by side. Smaller ones are kept for the next
// run, so that the system need not clear them each time.
inline constexpr int64_t kLargeBlock = int64_t{256} << 20;

// What a process needs that runs subjects: threads, the counter of memory, and malloc's settings.
void set_up_process(int threads);

struct PeerSettings {
  std::string program = {};  // this program; empty: its subjects run in this process
  std::string folder = {};   // bench/peers of the sources
  int threads = 2;
  std::string jax_checkout = {};  // of the authors' code
  std::string jax_python = {};    // an interpreter with jax and flax; empty: that of the peers
};

// A subject of this program, in this process.
std::unique_ptr<Runner> make_local_runner(const SubjectKind& kind);

std::unique_ptr<Runner> make_runner(const SubjectKind& kind, const PeerSettings& settings);

}  // namespace qna::bench::study
