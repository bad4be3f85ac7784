// Feeds every reader of files with mutated ones, under the sanitizers: `make fuzz`. A reader may
// throw qna::Error; anything else ends the program, with what to type to see it again.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/command.h"
#include "qna/base/error.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"

extern "C" void __sanitizer_set_death_callback(void (*callback)());

namespace qna::fuzz {
namespace {

namespace fs = std::filesystem;

// Where it is, for a callback that may not ask anybody.
struct Place {
  const char* target = "";
  int64_t run = 0;
  const std::string* bytes = nullptr;
} place;

constexpr const char* kFound = "fuzz-found.bin";

void tell_place() {
  std::fprintf(stderr, "\nfuzz: target %s, run %lld; see it again with --target %s --only %lld\n",
               place.target, static_cast<long long>(place.run), place.target,
               static_cast<long long>(place.run));
  if (place.bytes != nullptr) {
    std::ofstream(kFound, std::ios::binary) << *place.bytes;
    std::fprintf(stderr, "fuzz: the file is %s\n", kFound);
  }
}

void on_time_out(int) {
  std::fprintf(stderr, "\nfuzz: a reader took more than 20 seconds\n");
  tell_place();
  _exit(1);
}

std::vector<std::string> read_seeds(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  check(!seeds.empty(), "{}: there are no seeds", folder.string());
  return seeds;
}

struct Options {
  std::string seeds;
  std::string target;  // empty: all
  int64_t runs = 1'000'000;
  int64_t only = -1;
  int64_t seed = 1;
};

void run_target(const Target& target, const Options& o) {
  const std::vector<std::string> seeds = read_seeds(fs::path(o.seeds) / target.name);
  place.target = target.name;
  const auto read = [&](const std::string& bytes, bool must_do = false) {
    place.bytes = &bytes;
    alarm(20);
    try {
      target.read(bytes);
      return true;
    } catch (const Error& error) {
      check(!must_do, "fuzz: a seed of {} is refused: {}", target.name, error.what());
      return false;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "fuzz: not a qna::Error: %s\n", error.what());
      tell_place();
      std::_Exit(1);
    }
  };
  for (const std::string& seed : seeds) read(seed, /*must_do=*/true);
  const int64_t runs = std::max<int64_t>(1, o.runs * target.share / 1000);
  const auto start = std::chrono::steady_clock::now();
  int64_t accepted = 0;
  for (int64_t run = o.only >= 0 ? o.only : 0; run < runs; ++run) {
    place.run = run;
    // Every run by itself, so that one can be seen again without the others.
    std::mt19937_64 random(o.seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(run));
    accepted += read(mutate(seeds, random));
    if (o.only >= 0) break;
    if (isatty(2) && run % 1000 == 0) {
      std::fprintf(stderr, "\r%-12s %lld of %lld", target.name, static_cast<long long>(run),
                   static_cast<long long>(runs));
    }
  }
  alarm(0);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (isatty(2)) std::fprintf(stderr, "\r%40s\r", "");
  fmt::print("{:<12} {:>9} files, {:>8} accepted, {:>6.1f} s  {}\n", target.name, runs, accepted,
             seconds.count(), target.reader);
  std::fflush(stdout);
}

}  // namespace
}  // namespace qna::fuzz

int main(int argc, char** argv) {
  using namespace qna::fuzz;
  qna::cli::Program program("qna-fuzz", "Feeds the readers of files with mutated ones.");
  qna::cli::Command command = program.command();
  Options o;
  std::vector<std::string> names;
  for (const Target& target : targets()) names.push_back(target.name);
  command.option("seeds", o.seeds, "Folder with a folder of seeds for each target").required();
  command.option("--target", o.target, "Only this one [all]").one_of(names);
  command.option("--runs", o.runs, "Files for the engine; the others get a part of it [1000000]");
  command.option("--seed", o.seed, "Of the random changes [1]");
  command.option("--only", o.only, "Just this run");
  command.callback([&o] {
    __sanitizer_set_death_callback(&tell_place);
    std::signal(SIGALRM, &on_time_out);
    for (const Target& target : targets()) {
      if (o.target.empty() || o.target == target.name) run_target(target, o);
    }
  });
  return program.run(argc, argv);
}
