#include "bench/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "bench/cli/verbs.h"
#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/report/machine.h"

namespace qna::cli {
namespace {

struct GuardArguments {
  std::string file = "results/guard.csv";
  bool update = false;
  bench::GuardOptions options;
};

void run_guard(const GuardArguments& a) {
  bench::GuardRows kept;
  if (std::filesystem::exists(a.file)) {
    kept = bench::guard_rows(read_file(a.file), a.file);
  } else {
    check(a.update, "{}: there is no such file; --update writes it", a.file);
  }
  const std::vector<bench::GuardResult> results = bench::run_guard_bench(a.options);
  fmt::print("{}; {} threads\n\n{:<26}{:>10}{:>10}{:>10}{:>8}\n", report::machine_description(),
             a.options.threads, "case", "ms", "speed", "kept", "ratio");
  int compared = 0;
  std::vector<std::string> slow;
  for (const bench::GuardResult& r : results) {
    const std::string key = bench::guard_key(r.name, a.options);
    const auto before = kept.find(key);
    const double ratio = before == kept.end() ? 1 : r.speed / before->second;
    fmt::print("{:<26}{:>10.3f}{:>10.3f}{:>10}{:>8}\n", r.name, r.ms, r.speed,
               before == kept.end() ? "-" : fmt::format("{:.3f}", before->second),
               before == kept.end() ? "-" : fmt::format("{:.2f}", ratio));
    compared += before != kept.end();
    if (ratio < bench::kGuardLeast) slow.push_back(r.name);
    if (a.update) kept[key] = r.speed;
  }
  if (a.update) {
    write_file(a.file, bench::guard_csv(kept));
    fmt::print("\nwrote {}\n", a.file);
    return;
  }
  check(compared > 0, "{} has no row for these kernels and {} threads; --update adds them", a.file,
        a.options.threads);
  check(slow.empty(), "slower than {} of what {} has: {}", bench::kGuardLeast, a.file,
        fmt::join(slow, ", "));
  fmt::print("\nnothing is slower than {} of what {} has\n", bench::kGuardLeast, a.file);
}

}  // namespace

void add_bench_guard(Command program) {
  Command verb = program.verb("guard", "Whether something has become slow since results/guard.csv");
  auto a = std::make_shared<GuardArguments>();
  a->options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  verb.option("--file", a->file, "Kept speeds [results/guard.csv]");
  verb.flag("--update", a->update, "Keep the speeds of this run");
  verb.option("--threads", a->options.threads, "Threads [all cores]").range(1, 1024);
  verb.option("--rounds", a->options.rounds, "Interleaved rounds [15]").range(1, 10000);
  verb.footer(
      "A speed is the time of a plain matrix product, measured beside each case, divided by that "
      "of the\n"
      "case. What has less than 0.85 of the speed that was kept is named, and the status is not "
      "0.\n\n"
      "Examples:\n"
      "  qna bench guard\n"
      "  QNA_KERNEL=avx2 qna bench guard --update");
  verb.callback([a] { run_guard(*a); });
}

}  // namespace qna::cli
