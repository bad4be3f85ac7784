#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace qna::cli {

std::string progress_line(int64_t done, int64_t total, double seconds, const std::string& note) {
  constexpr int64_t kWidth = 20;
  const int64_t marks = total <= 0 ? 0 : std::clamp<int64_t>(kWidth * done / total, 0, kWidth);
  std::string line = fmt::format("[{}{}] {}/{}", std::string(marks, '#'),
                                 std::string(kWidth - marks, '.'), done, total);
  if (done > 0) {
    const double left = seconds / static_cast<double>(done) * static_cast<double>(total - done);
    line += left < 90 ? fmt::format(", {:.0f} s left", left)
                      : fmt::format(", {:.0f} min left", left / 60);
  }
  return line + ": " + note;
}

Progress::Progress(int64_t total) : total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() { wipe(); }

void Progress::wipe() {
  if (!terminal_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

void Progress::show(int64_t done, const std::string& note) {
  constexpr std::chrono::seconds kBetweenLines{10};
  const Clock::time_point now = Clock::now();
  if (!terminal_ && now - last_line_ < kBetweenLines) return;
  last_line_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string line = progress_line(done, total_, seconds, note);
  std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", line.c_str());
  std::fflush(stderr);
}

}  // namespace qna::cli
