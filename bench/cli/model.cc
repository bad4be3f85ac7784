#include "bench/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>

#include "bench/cli/peers.h"
#include "bench/cli/verbs.h"
#include "cli/model_argument.h"
#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/base/version.h"
#include "qna/config/registry.h"
#include "qna/report/machine.h"

namespace qna::cli {
namespace {

struct ModelArguments {
  std::vector<std::string> images;
  std::string csv;
  bench::ModelBenchOptions options;
};

void run_model(ModelArguments& a) {
  bench::ModelBenchOptions& options = a.options;
  if (options.models.empty()) {
    for (const config::ModelEntry& entry : config::models()) options.models.push_back(entry.name);
  }
  for (const std::string& name : options.models) config::find_model(name);
  for (const std::string& image : a.images) options.images.push_back(parse_size(image, "--image"));
  if (options.peers.empty() && options.train) options.peers = {"eager"};
  if (options.peers.empty()) {
    options.peers = {"eager", "compiled", "onnxruntime", "openvino", "rivals"};
  }
  if (options.peers == std::vector<std::string>{"none"}) options.peers.clear();
  for (const std::string& peer : options.peers) {
    check(!options.train || peer == "eager" || peer == "compiled" || peer == "python",
          "--peer must be eager, compiled or python with --train, got {}", peer);
  }
  check(std::count(options.peers.begin(), options.peers.end(), "none") == 0,
        "--peer none must stand alone");
  options.peers_folder = bench::default_peers_folder();
  options.program = std::filesystem::read_symlink("/proc/self/exe").string();
  const bool need_python = std::ranges::any_of(
      options.peers, [](const std::string& peer) { return peer != "bfloat16"; });
  if (need_python) set_up_peers(options.peers_folder);
  const std::vector<bench::ModelResult> results = bench::run_model_bench(options);
  fmt::print("{}, {} threads, commit {}\n\n{}", report::machine_description(), options.threads,
             commit(), bench::model_table(results));
  if (!a.csv.empty()) {
    write_file(a.csv, bench::model_csv(results));
    fmt::print("\nwrote {}\n", a.csv);
  }
}

}  // namespace

void add_bench_model(Command program) {
  Command verb = program.verb(
      "model", "Images per second and memory of whole networks beside their peers, in one run");
  auto a = std::make_shared<ModelArguments>();
  a->options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  constexpr int kMost = 1 << 20;
  verb.option("--model", a->options.models, "Which models [all; see qna models]").comma_separated();
  verb.option("--batch", a->options.batches, "Images that run together [1,8]")
      .range(1, kMost)
      .comma_separated();
  verb.option("--image", a->images, "Image sides, or HEIGHTxWIDTH [each model's own]")
      .comma_separated();
  verb.option("--threads", a->options.threads, "Threads [all cores]").range(1, 1024);
  verb.option("--peer", a->options.peers,
              "eager, compiled, onnxruntime, openvino, rivals [these]; python; bfloat16; or none")
      .one_of(
          {"eager", "compiled", "onnxruntime", "openvino", "rivals", "python", "bfloat16", "none"})
      .comma_separated();
  verb.flag("--train", a->options.train,
            "Steps of training instead of inference; for eager, compiled and python [eager]");
  verb.option("--rounds", a->options.rounds, "Turns of each subject [7]").range(1, 10000);
  verb.option("--csv", a->csv, "Also write all measurements to this file");
  verb.footer(
      "The peers run the same network with the same weights by the paper's algorithm: PyTorch\n"
      "(eager, and compiled with freezing), ONNX Runtime and OpenVINO; their logits are checked.\n"
      "python: our own network by LibTorch's modules, and by the Python package: in PyTorch, "
      "compiled\n"
      "and by qna.open, from the release build. rivals: other networks, in PyTorch and in\n"
      "OpenVINO, beside the first model. bfloat16: ours, with weights in 16 bits. Peers live in\n"
      "build/peers (1.5 GB), set up at the first run. Every subject is a process of its own, and\n"
      "they take turns.\n\n"
      "Examples:\n"
      "  qna bench model --model qna_vit_tiny --batch 8 --csv tiny.csv\n"
      "  qna bench model --train --model qna_vit_tiny --batch 8\n"
      "  qna bench model --peer python --model qna_vit_tiny\n"
      "  qna bench model --peer none\n"
      "  qna bench model --peer none --model qna_vit_tiny --batch 1 --image 224,448,1536x2048");
  verb.callback([a] { run_model(*a); });
}

}  // namespace qna::cli
