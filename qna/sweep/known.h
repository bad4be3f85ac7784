// Results that need no run: what another sweep has run with the same recipe and seed, and what a
// runs.csv from elsewhere tells.
#pragma once

#include <map>
#include <string>

#include "qna/sweep/result.h"
#include "qna/sweep/sweep.h"

namespace qna::sweep {

class KnownRuns {
 public:
  void add(const RunResult& result);

  // A runs.csv, or all of those in a folder and in the folders in it. Throws qna::Error where
  // there is none, or what is there is no such table.
  void read(const std::string& path);

  // The result with all numbers that the sweep shows; none: it must be run.
  std::optional<RunResult> find(const Sweep& sweep, const Run& run) const;

 private:
  std::map<std::string, RunResult> by_fingerprint_;
};

}  // namespace qna::sweep
