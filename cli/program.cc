#include "cli/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <vector>

#include "qna/base/version.h"

namespace qna::cli {
namespace {

namespace fs = std::filesystem;

// Of a message: "qna" for "qna train" too.
std::string speaker(const std::string& program) { return program.substr(0, program.find(' ')); }

}  // namespace

std::string program_name(const char* argv0) {
  return fs::path(argv0 == nullptr ? "" : argv0).filename().string();
}

std::string version_text(const std::string& program) {
  return fmt::format("{} {}, commit {}", program, version(), commit());
}

int run_program(CLI::App& app, int argc, char** argv,
                std::string (*describe)(const std::exception&)) {
  const std::string name = app.get_name();
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // CLI11 asks for a verb before it looks at what stands in its place.
    const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
    if (unknown.empty() || app.get_subcommands([](CLI::App*) { return true; }).empty()) {
      return app.exit(error) == 0 ? 0 : 2;
    }
    fmt::print(stderr, "{}: unknown verb '{}'; run '{} --help' for a list\n", speaker(name),
               unknown.front(), name);
    return 2;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", speaker(name),
               describe == nullptr ? error.what() : describe(error));
    return 1;
  }
  return 0;
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
               "needs LibTorch; 'make build' in the sources of qna builds it.\n",
               name, file, program.string());
  } else {
    fmt::print(stderr, "qna: cannot start {}: {}\n", program.string(), std::strerror(errno));
  }
  return 1;
}

}  // namespace qna::cli
