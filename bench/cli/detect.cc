#include "bench/detect.h"

#include <fmt/format.h>

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

struct DetectArguments {
  std::string image = "320";
  std::string peer = "detr";
  std::string csv;
  bench::DetectBenchOptions options;
};

void run_detect(DetectArguments& a) {
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

void add_worker(Command program, const char* name, void (*work)(const bench::WorkerOptions&)) {
  Command verb = program.hidden_verb(name);
  auto options = std::make_shared<bench::WorkerOptions>();
  auto image = std::make_shared<std::string>("224");
  verb.option("--weights", options->weights).required();
  verb.option("--check", options->check);
  verb.option("--batch", options->batch);
  verb.option("--image", *image);
  verb.option("--threads", options->threads);
  verb.flag("--train", options->train);
  verb.flag("--modules", options->modules);
  verb.flag("--bfloat16", options->bfloat16);
  verb.callback([options, image, work] {
    const std::array<int64_t, 2> size = parse_size(*image, "--image");
    options->height = size[0];
    options->width = size[1];
    work(*options);
  });
}

}  // namespace

void add_bench_detect(Command program) {
  Command verb = program.verb(
      "detect", "Images per second of detectors, in training and use, beside DETR in PyTorch");
  auto a = std::make_shared<DetectArguments>();
  a->options.models = {"detr_tiny", "detr_qna_tiny", "detr_r50"};
  a->options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  verb.option("--model", a->options.models,
              "Which detectors [detr_tiny,detr_qna_tiny,detr_r50; see qna models]")
      .comma_separated();
  verb.option("--pass", a->options.passes, "train (a step), detect (one image) [both]")
      .one_of({"train", "detect"})
      .comma_separated();
  verb.option("--batch", a->options.train_batch, "Images of a step of training [2]").range(1, 1024);
  verb.option("--image", a->image, "Image side, or HEIGHTxWIDTH [320]");
  verb.option("--threads", a->options.threads, "Threads [all cores]").range(1, 1024);
  verb.option("--peer", a->peer, "detr or none [detr]").one_of({"detr", "none"});
  verb.option("--rounds", a->options.rounds, "Turns of each subject [7]").range(1, 10000);
  verb.option("--csv", a->csv, "Also write all measurements to this file");
  verb.footer(
      "A step of training: forward, matching and losses of all decoder blocks (8 objects per\n"
      "image), backward, gradients clipped to 0.1, AdamW. The peer is DETR on torchvision's\n"
      "ResNet-50 in PyTorch eager, with the weights of detr_r50; its predictions are checked.\n"
      "'qna is' compares with it. Every subject is a process of its own, and they take turns.\n\n"
      "Examples:\n"
      "  qna bench detect\n"
      "  qna bench detect --pass train --rounds 15 --csv detect.csv\n"
      "  qna bench detect --peer none --image 800x1066 --pass detect");
  verb.callback([a] { run_detect(*a); });
}

void add_bench_workers(Command program) {
  add_worker(program, "worker", bench::run_worker);
  add_worker(program, "detect-worker", bench::run_detect_worker);
}

}  // namespace qna::cli
