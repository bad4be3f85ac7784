#include "bench/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "qna/base/error.h"

extern char** environ;

namespace qna::bench {
namespace {

using nlohmann::json;

json parse(const std::string& line, const char* key) {
  const json answer = json::parse(line, nullptr, /*allow_exceptions=*/false);
  check(answer.is_object(), "a peer answered '{}', which is not the protocol", line);
  check(!answer.contains("error"), "{}", answer.value("error", ""));
  check(answer.contains(key), "a peer answered '{}' without '{}'", line, key);
  return answer;
}

}  // namespace

Peer::Peer(const std::vector<std::string>& command) {
  signal(SIGPIPE, SIG_IGN);  // a dead peer is noticed by its silence
  int in[2], out[2];
  check(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "cannot make a pipe: {}",
        std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (const std::string& part : command) arguments.push_back(const_cast<char*>(part.c_str()));
  arguments.push_back(nullptr);
  const int status =
      posix_spawn(&process_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_ = fdopen(in[1], "w");
  from_ = fdopen(out[0], "r");
  if (status != 0) process_ = -1;
  try {
    check(status == 0, "cannot start {}: {}", command.front(), std::strerror(status));
    const json ready = parse(read_line(kNoLimit), "ready");
    version_ = ready.value("version", "");
    peak_bytes_ = ready.value("peak_bytes", int64_t{0});
    if (ready.contains("macs") && ready["macs"].is_number()) macs_ = ready["macs"];
    if (ready.contains("max_difference") && ready["max_difference"].is_number()) {
      const double difference = ready["max_difference"];
      check(difference <= 1e-3, "its logits differ by {:.2g} of the largest", difference);
    }
  } catch (...) {
    stop();
    throw;
  }
}

Peer::~Peer() { stop(); }

void Peer::stop() {
  if (to_ != nullptr) fclose(to_);
  if (from_ != nullptr) fclose(from_);
  to_ = from_ = nullptr;
  if (process_ > 0) {
    kill(process_, SIGTERM);
    waitpid(process_, nullptr, 0);
  }
  process_ = -1;
}

std::string Peer::read_line(double limit) {
  // An answer is written at once: when it begins, all of it is there.
  pollfd input{fileno(from_), POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&input, 1, static_cast<int>(limit * 1000));
  } while (ready < 0 && errno == EINTR);
  check(ready != 0, "it did not answer within {:.0f} s", limit);
  std::string line;
  for (int c = fgetc(from_); c != '\n'; c = fgetc(from_)) {
    if (c == EOF) fail("{}", how_it_ended());
    line.push_back(static_cast<char>(c));
  }
  return line;
}

// Once its output has ended.
std::string Peer::how_it_ended() {
  int status = 0;
  const bool known = process_ > 0 && waitpid(process_, &status, 0) == process_;
  process_ = -1;
  if (known && WIFSIGNALED(status)) {
    return fmt::format("the process was ended by signal {} ({})", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  }
  return "the process ended without a word";
}

nlohmann::json Peer::ask(const std::string& request, const char* key, double limit) {
  fprintf(to_, "%s\n", request.c_str());
  fflush(to_);
  return parse(read_line(limit), key);
}

double Peer::seconds(int batches) {
  return ask(fmt::format("run {}", batches), "seconds")["seconds"];
}

}  // namespace qna::bench
