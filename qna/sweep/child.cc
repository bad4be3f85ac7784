#include "qna/sweep/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "qna/base/error.h"

namespace qna::sweep {
namespace {

// Between fork and exec: calls that are allowed there, and nothing that allocates.
[[noreturn]] void become(char* const* words, const char* output, const char* errors, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before the line above
  const int out = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const int err = open(errors, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const int in = open("/dev/null", O_RDONLY);
  if (out < 0 || err < 0 || in < 0) _exit(127);
  dup2(in, 0);
  dup2(out, 1);
  dup2(err, 2);
  execv(words[0], words);
  _exit(127);
}

}  // namespace

Child::Child(const std::vector<std::string>& command, const std::string& output,
             const std::string& errors) {
  check(access(command[0].c_str(), X_OK) == 0, "{}: cannot be started: {}", command[0],
        std::strerror(errno));
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ == 0) become(words.data(), output.c_str(), errors.c_str(), parent);
  check(process_ > 0, "cannot start {}: {}", command[0], std::strerror(errno));
}

Child::~Child() {
  if (process_ < 0) return;
  kill(process_, SIGKILL);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<Ending> Child::ended() {
  int status = 0;
  rusage used = {};
  const pid_t found = wait4(process_, &status, WNOHANG, &used);
  if (found == 0 || (found < 0 && errno == EINTR)) return std::nullopt;
  check(found > 0, "cannot wait for a program: {}", std::strerror(errno));
  process_ = -1;
  // ru_maxrss is in kibibytes.
  return Ending{.good = WIFEXITED(status) && WEXITSTATUS(status) == 0,
                .peak_memory_mb = static_cast<double>(used.ru_maxrss) * 1024 / 1e6};
}

void Child::ask_to_stop() {
  // A second signal would end a training run without saving it.
  if (process_ > 0 && !asked_) kill(process_, SIGTERM);
  asked_ = true;
}

}  // namespace qna::sweep
