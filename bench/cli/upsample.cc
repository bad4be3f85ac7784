#include "bench/upsample.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "bench/cli/verbs.h"
#include "qna/base/error.h"
#include "qna/base/file.h"

namespace qna::cli {
namespace {

struct UpsampleArguments {
  std::string csv;
  bench::UpsampleOptions options;
};

void run_upsample(const UpsampleArguments& a) {
  check(a.options.dim % a.options.heads == 0, "--heads must divide --dim ({}), got {}",
        a.options.dim, a.options.heads);
  const std::vector<bench::UpsampleResult> results = bench::run_upsample_bench(a.options);
  fmt::print("{}", bench::upsample_table(results, a.options));
  if (!a.csv.empty()) {
    write_file(a.csv, bench::upsample_csv(results, a.options));
    fmt::print("\nwrote {}\n", a.csv);
  }
}

}  // namespace

void add_bench_upsample(Command program) {
  Command verb = program.verb(
      "upsample", "Time and memory of QnA as an up-sampling layer beside its peers, in one run");
  auto a = std::make_shared<UpsampleArguments>();
  a->options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  constexpr int kMost = 1 << 14;
  verb.option("--factor", a->options.factors, "How much larger the map becomes [2]")
      .range(2, 8)
      .comma_separated();
  verb.option("--size", a->options.size, "Side of the map before [64]").range(1, kMost);
  verb.option("--dim", a->options.dim, "Features in and out [64]").range(1, kMost);
  verb.option("--heads", a->options.heads, "Attention heads of QnA [8]").range(1, kMost);
  verb.option("--kernel", a->options.kernel, "Window side of QnA [3]").range(1, 63);
  verb.option("--batch", a->options.batch, "Images [1]").range(1, kMost);
  verb.option("--pass", a->options.passes, "forward, train (forward and backward) [both]")
      .one_of({"forward", "train"})
      .comma_separated();
  verb.option("--threads", a->options.threads, "Threads [all cores]").range(1, 1024);
  verb.option("--rounds", a->options.rounds, "Interleaved rounds [15]").range(1, 10000);
  verb.option("--csv", a->csv, "Also write all measurements to this file");
  verb.footer(
      "Peers: bilinear up-sampling with a 3 x 3 convolution behind it, and a transposed\n"
      "convolution whose window is twice the factor, both LibTorch's, channels last.\n\n"
      "Examples:\n"
      "  qna bench upsample\n"
      "  qna bench upsample --factor 2,3,4 --size 32 --batch 8 --csv upsample.csv");
  verb.callback([a] { run_upsample(*a); });
}

}  // namespace qna::cli
