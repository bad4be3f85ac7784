#include "qna/train/local_processes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "qna/base/error.h"

namespace qna::train {
namespace {

// A port that nobody listens at.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool found = socket >= 0 &&
                     ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const std::string reason = std::strerror(errno);
  if (socket >= 0) ::close(socket);
  check(found, "no free port on this machine for the processes to meet: {}", reason);
  return ntohs(address.sin_port);
}

struct Child {
  pid_t process;
  int words;  // what it complains of comes here
  bool killed = false;
};

// Everything until the other end is closed.
std::string read_all(int file) {
  std::string text;
  char buffer[512];
  for (ssize_t n = 0; (n = ::read(file, buffer, sizeof buffer)) != 0;) {
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  ::close(file);
  return text;
}

[[noreturn]] void run_child(const Rank& rank, int words,
                            const std::function<void(const Rank&)>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string complaint;
  try {
    work(rank);
  } catch (const std::exception& error) {
    complaint = error.what();
  }
  std::fflush(nullptr);
  const ssize_t written = ::write(words, complaint.data(), complaint.size());
  // No destructors: they belong to the parent.
  std::_Exit(complaint.empty() && written == 0 ? 0 : 1);
}

Child start_child(const Rank& rank, const std::function<void(const Rank&)>& work) {
  int ends[2];
  check(::pipe(ends) == 0, "cannot start process {}: {}", rank.rank, std::strerror(errno));
  std::fflush(nullptr);  // what is not written yet would be written by both
  const pid_t process = ::fork();
  check(process >= 0, "cannot start process {}: {}", rank.rank, std::strerror(errno));
  if (process == 0) {
    ::close(ends[0]);
    run_child(rank, ends[1], work);
  }
  ::close(ends[1]);
  return {.process = process, .words = ends[0]};
}

// Waits for it; what it complained of, or nothing.
std::string end_of(const Child& child) {
  const std::string words = read_all(child.words);
  int status = 0;
  while (::waitpid(child.process, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFSIGNALED(status)) return words;
  return child.killed ? "" : fmt::format("ended by signal '{}'", strsignal(WTERMSIG(status)));
}

// Gives those a moment which fail for the same reason, or are the reason.
void end_all(std::vector<Child>& children) {
  for (Child& child : children) {
    pollfd closed{.fd = child.words, .events = POLLIN, .revents = 0};
    if (::poll(&closed, 1, /*milliseconds=*/500) != 0) continue;
    child.killed = true;
    ::kill(child.process, SIGKILL);
  }
}

}  // namespace

void run_local_processes(int count, const std::function<void(const Rank&)>& work) {
  Rank rank{
      .rank = 0, .ranks = count, .local_ranks = count, .address = "127.0.0.1", .port = free_port()};
  std::vector<Child> children;
  for (rank.rank = 1; rank.rank < count; ++rank.rank) {
    children.push_back(start_child(rank, work));
  }
  rank.rank = 0;
  std::exception_ptr own;
  std::string own_words;
  try {
    work(rank);
  } catch (const std::exception& error) {
    own = std::current_exception();
    own_words = error.what();
    end_all(children);
  }
  std::string others;
  for (int i = 1; i < count; ++i) {
    const std::string words = end_of(children[static_cast<size_t>(i - 1)]);
    if (others.empty() && !words.empty() && words != own_words) {
      others = fmt::format("process {}: {}", i, words);
    }
  }
  if (own && others.empty()) std::rethrow_exception(own);
  check(others.empty(), "{}{}{}", own_words, own ? "\n     " : "", others);
}

}  // namespace qna::train
