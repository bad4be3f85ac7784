// A subject of a benchmark in a process of its own; bench/peers/README.md has the protocol.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace qna::bench {

class Peer {
 public:
  static constexpr double kNoLimit = 1e6;

  // Starts `command` and waits until it is ready. Throws qna::Error with its own words if it cannot
  // run.
  explicit Peer(const std::vector<std::string>& command);
  ~Peer();  // ends the process
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Its answer to a request, which must have this key. Throws qna::Error with its own words if it
  // cannot answer, or if it takes longer than `limit` seconds; it is of no more use then.
  nlohmann::json ask(const std::string& request, const char* key, double limit = kNoLimit);
  double seconds(int batches);  // for that many batches, one after the other
  const std::string& version() const { return version_; }
  int64_t peak_bytes() const { return peak_bytes_; }
  double macs() const { return macs_; }  // multiply-adds of one image; 0: it does not say

 private:
  std::string read_line(double limit);
  std::string how_it_ended();
  void stop();
  pid_t process_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  std::string version_;
  int64_t peak_bytes_ = 0;
  double macs_ = 0;
};

}  // namespace qna::bench
