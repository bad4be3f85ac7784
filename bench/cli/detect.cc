#include "bench/detect.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "bench/cli/peers.h"
#include "bench/cli/verbs.h"
#include "bench/worker.h"
#include "cli/model_argument.h"
#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/base/version.h"
#include "qna/config/detectors.h"
#include "qna/report/machine.h"

namespace qna::cli {
namespace {

struct Arguments {
  std::string image = "320";
  std::string peer = "detr";
  std::string csv;
  bench::DetectBenchOptions options;
};

void run(Arguments& a) {
  bench::DetectBenchOptions& options = a.options;
  for (const std::string& name : options.models) config::find_detector(name);
  options.image = parse_size(a.image, "--image");
  options.peer = a.peer != "none";
  options.peers_folder = bench::default_peers_folder();
  options.program = std::filesystem::read_symlink("/proc/self/exe").string();
  check(!options.peer || options.image[0] == options.image[1],
        "--image must be square, since the peer takes square images (or give --peer none), got {}",
        a.image);
  if (options.peer) set_up_peers(options.peers_folder);
  const std::vector<bench::ModelResult> results = bench::run_detect_bench(options);
  fmt::print("{}, {} threads, commit {}\n\n{}", report::machine_description(), options.threads,
             commit(), bench::detect_table(results));
  if (!a.csv.empty()) {
    write_file(a.csv, bench::model_csv(results));
    fmt::print("\nwrote {}\n", a.csv);
  }
}

void add_worker(CLI::App& verbs, const char* name, void (*work)(const bench::WorkerOptions&)) {
  CLI::App* verb = verbs.add_subcommand(name, "One subject of a benchmark");
  verb->group("");  // not listed
  auto options = std::make_shared<bench::WorkerOptions>();
  auto image = std::make_shared<std::string>("224");
  verb->add_option("--weights", options->weights)->required();
  verb->add_option("--check", options->check);
  verb->add_option("--batch", options->batch);
  verb->add_option("--image", *image);
  verb->add_option("--threads", options->threads);
  verb->add_flag("--train", options->train);
  verb->callback([options, image, work] {
    const std::array<int64_t, 2> size = parse_size(*image, "--image");
    options->height = size[0];
    options->width = size[1];
    work(*options);
  });
}

}  // namespace

void add_bench_detect(CLI::App& verbs) {
  CLI::App* verb = verbs.add_subcommand(
      "detect", "Images per second of detectors, in training and use, beside DETR in PyTorch");
  auto a = std::make_shared<Arguments>();
  a->options.models = {"detr_tiny", "detr_qna_tiny", "detr_r50"};
  a->options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  verb->add_option("--model", a->options.models,
                   "Which detectors [detr_tiny,detr_qna_tiny,detr_r50; see qna models]")
      ->delimiter(',');
  verb->add_option("--pass", a->options.passes, "train (a step), detect (one image) [both]")
      ->check(CLI::IsMember({"train", "detect"}))
      ->delimiter(',');
  verb->add_option("--batch", a->options.train_batch, "Images of a step of training [2]")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--image", a->image, "Image side, or HEIGHTxWIDTH [320]");
  verb->add_option("--threads", a->options.threads, "Threads [all cores]")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--peer", a->peer, "detr or none [detr]")
      ->check(CLI::IsMember({"detr", "none"}));
  verb->add_option("--rounds", a->options.rounds, "Turns of each subject [7]")
      ->check(CLI::Range(1, 10000));
  verb->add_option("--csv", a->csv, "Also write all measurements to this file");
  verb->footer(
      "A step of training: forward, matching and losses of all decoder blocks (8 objects per\n"
      "image), backward, gradients clipped to 0.1, AdamW. The peer is DETR on torchvision's\n"
      "ResNet-50 in PyTorch eager, with the weights of detr_r50; its predictions are checked.\n"
      "'qna is' compares with it. Every subject is a process of its own, and they take turns.\n\n"
      "Examples:\n"
      "  qna bench detect\n"
      "  qna bench detect --pass train --rounds 15 --csv detect.csv\n"
      "  qna bench detect --peer none --image 800x1066 --pass detect");
  verb->callback([a] { run(*a); });
}

void add_bench_workers(CLI::App& verbs) {
  add_worker(verbs, "worker", bench::run_worker);
  add_worker(verbs, "detect-worker", bench::run_detect_worker);
}

}  // namespace qna::cli
