// Errors out of C libraries whose error callback must not return (libjpeg, libpng).
#pragma once

#include <csetjmp>
#include <cstdio>
#include <string>

#include "qna/base/error.h"

namespace qna::image {

// An exception must not fly through C frames, so the callback calls stop(), which jumps back into
// run(), and the exception starts there. The jump skips destructors: neither `step` nor a callback
// may hold objects that have one.
class Guard {
 public:
  // Runs `step`. Throws qna::Error "<name>: <message>" if stop(message) is called meanwhile.
  template <typename Step>
  void run(const std::string& name, Step&& step) {
    if (setjmp(jump_) != 0) fail("{}: {}", name, message_);
    step();
  }

  [[noreturn]] void stop(const char* message) {
    std::snprintf(message_, sizeof(message_), "%s", message);
    std::longjmp(jump_, 1);
  }

 private:
  std::jmp_buf jump_;
  char message_[256] = "";
};

}  // namespace qna::image
