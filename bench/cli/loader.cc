#include "bench/loader.h"

#include <fmt/format.h>

#include <memory>

#include "bench/cli/peers.h"
#include "bench/cli/verbs.h"
#include "bench/round_robin.h"
#include "qna/base/file.h"
#include "qna/base/version.h"
#include "qna/report/machine.h"

namespace qna::cli {
namespace {

struct LoaderArguments {
  std::string peer = "timm";
  std::string csv;
  bench::LoaderBenchOptions options;
};

void run_loader(LoaderArguments& a) {
  if (a.peer != "none") {
    const std::string folder = bench::default_peers_folder();
    set_up_peers(folder);
    a.options.peer_command = {folder + "/../../build/peers/bin/python", folder + "/loader.py"};
  }
  const std::vector<bench::LoaderResult> results = bench::run_loader_bench(a.options);
  fmt::print("{}, 1 thread, commit {}\n\n{}", report::machine_description(), commit(),
             bench::loader_table(results));
  if (!a.csv.empty()) {
    write_file(a.csv,
               bench::loader_csv(results, a.options, report::machine_description(), commit()));
    fmt::print("\nwrote {}\n", a.csv);
  }
}

}  // namespace

void add_bench_loader(Command program) {
  Command verb = program.verb(
      "loader", "Training pictures per second of one core beside timm's pipeline, in one run");
  auto a = std::make_shared<LoaderArguments>();
  verb.option("folder", a->options.folder, "Folder with JPEG or PNG pictures")
      .required()
      .existing_folder();
  verb.option("--size", a->options.size, "Side of the result [224]").range(1, 4096);
  verb.option("--count", a->options.count, "Different pictures [256]").range(1, 1 << 20);
  verb.option("--peer", a->peer, "timm or none [timm]").one_of({"timm", "none"});
  verb.option("--rounds", a->options.rounds, "Turns of each subject [7]").range(1, 10000);
  verb.option("--csv", a->csv, "Also write all measurements to this file");
  verb.footer(
      "Both read a file, take a random part, resize it (bicubic), flip it, change it by\n"
      "RandAugment (rand-m9-mstd0.5-inc1) and normalise it; see docs/augmentation.md. The peer is\n"
      "timm's create_transform with torchvision and Pillow, in a process of its own.\n\n"
      "Example:\n"
      "  qna bench loader pictures/train --csv loader.csv");
  verb.callback([a] { run_loader(*a); });
}

}  // namespace qna::cli
