#include "cli/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "qna/base/version.h"

namespace qna::cli {

namespace fs = std::filesystem;

std::string program_name(const char* argv0) {
  return fs::path(argv0 == nullptr ? "" : argv0).filename().string();
}

std::string version_text(const std::string& program) {
  return fmt::format("{} {}, commit {}", program, version(), commit());
}

int become_program(const char* file, int argc, char** argv) {
  std::error_code none;
  const fs::path self = fs::read_symlink("/proc/self/exe", none);
  const fs::path program = self.parent_path() / file;
  // Its messages name what was typed.
  const std::string name = fmt::format("qna {}", argv[1]);
  std::vector<char*> arguments = {const_cast<char*>(name.c_str())};
  arguments.insert(arguments.end(), argv + 2, argv + argc);
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  if (errno == ENOENT) {
    fmt::print(stderr,
               "qna: '{}' is a program of its own, {}, which is not installed: {} is not there. It "
               "needs LibTorch; 'make train' in the sources of qna builds what trains, 'make "
               "build' all.\n",
               name, file, program.string());
  } else {
    fmt::print(stderr, "qna: cannot start {}: {}\n", program.string(), std::strerror(errno));
  }
  return 1;
}

}  // namespace qna::cli
