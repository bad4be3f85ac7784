// Progress on stderr for work over a few seconds: a bar with the time left on a terminal, a plain
// line now and then elsewhere. For programs; the library itself is silent.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace qna::cli {

class Progress {
 public:
  explicit Progress(int64_t total);
  ~Progress();  // wipes the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of the total are done and `note` says what comes now.
  void show(int64_t done, const std::string& note);
  // Takes the bar off the terminal until the next show(), so that a line can be printed.
  void wipe();

 private:
  using Clock = std::chrono::steady_clock;
  const int64_t total_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_line_ = start_;
};

// "[######..............] 3/10, 12 s left: note"; no time before something is done.
std::string progress_line(int64_t done, int64_t total, double seconds, const std::string& note);

}  // namespace qna::cli
