// A subject at work, in this process or in one of its own.
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
  virtual void release() {}      // forgets what was prepared
};

struct PeerSettings {
  std::string folder;  // bench/peers of the sources
  int threads = 2;
  std::string jax_checkout = {};  // of the authors' code
  std::string jax_python = {};    // an interpreter with jax and flax; empty: that of the peers
};

std::unique_ptr<Runner> make_runner(const SubjectKind& kind, const PeerSettings& settings);

}  // namespace qna::bench::study
