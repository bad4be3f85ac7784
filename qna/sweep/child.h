// Programs that a sweep starts and looks after.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace qna::sweep {

// How a program ended.
struct Ending {
  bool good = false;          // by itself, with status 0
  double peak_memory_mb = 0;  // of resident memory
};

// A program that runs; it is killed with this process, however that ends, and with this object. A
// Ctrl-C at the terminal does not reach it: who looks after it decides.
class Child {
 public:
  // output, errors: files. Throws qna::Error where the program cannot be started.
  Child(const std::vector<std::string>& command, const std::string& output,
        const std::string& errors);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  std::optional<Ending> ended();  // does not wait
  void ask_to_stop();             // SIGTERM, once

 private:
  pid_t process_ = -1;
  bool asked_ = false;
};

}  // namespace qna::sweep
