#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>

#include "bench/layer.h"
#include "bench/loader.h"
#include "bench/measure.h"
#include "bench/model.h"
#include "cli/bench_detect.h"
#include "cli/bench_study.h"
#include "cli/bench_upsample.h"
#include "cli/model_argument.h"
#include "cli/peers.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/models/registry.h"
#include "qna/report/machine.h"

namespace qna::cli {
namespace {

struct LayerArguments {
  std::vector<int64_t> kernels = {};  // empty: a choice of them
  std::vector<int64_t> sizes = {256, 256};
  int64_t dim = 64;
  int64_t heads = 8;
  int64_t queries = 2;
  int64_t stride = 1;
  int64_t batch = 0;  // 0: 1, or 8 with --models
  bool models = false;
  bool quick = false;
  std::string csv;
  bench::LayerBenchOptions options;
  StudyArguments study;
};

// What the study shares with the rest of the verb.
void run_study(LayerArguments& a) {
  StudyArguments& study = a.study;
  check(a.options.threads.size() == 1, "--study needs one number of --threads, got {}",
        a.options.threads.size());
  study.options.peers.threads = static_cast<int>(a.options.threads.front());
  study.options.passes = a.options.passes;
  study.options.rounds = a.options.rounds;
  study.quick = a.quick;
  study.csv = a.csv;
  run_study(study);
}

void run_layer(LayerArguments& a) {
  if (a.study.study) return run_study(a);
  bench::LayerBenchOptions& options = a.options;
  if (a.quick) {
    if (a.kernels.empty()) a.kernels = {3, 7};
    if (options.rounds == 0) options.rounds = 3;
  }
  if (a.kernels.empty()) a.kernels = {3, 5, 7, 9, 11, 13};
  if (options.rounds == 0) options.rounds = 7;
  check(options.peers.size() == 1 ||
            std::count(options.peers.begin(), options.peers.end(), "none") == 0,
        "--peer none must stand alone");
  if (a.models) {
    options.cases = bench::model_cases(a.batch == 0 ? 8 : a.batch);
  } else {
    check(a.dim % a.heads == 0, "--heads must divide --dim ({}), got {}", a.dim, a.heads);
    for (const int64_t kernel : a.kernels) {
      options.cases.push_back({.kernel = kernel,
                               .batch = a.batch == 0 ? 1 : a.batch,
                               .height = a.sizes.front(),
                               .width = a.sizes.back(),
                               .in_features = a.dim,
                               .dim = a.dim,
                               .heads = a.heads,
                               .queries = a.queries,
                               .stride = a.stride});
    }
  }
  const std::vector<bench::LayerResult> results = bench::run_layer_bench(options);
  fmt::print("{}", bench::layer_table(results, options.dtype));
  if (!a.csv.empty()) {
    write_file(a.csv, bench::layer_csv(results, options.dtype));
    fmt::print("\nwrote {}\n", a.csv);
  }
}

void add_layer(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "layer", "Time and memory of one QnA layer beside its peers, in the same run");
  auto a = std::make_shared<LayerArguments>();
  a->options.rounds = 0;  // 7, or 3 with --quick
  a->options.threads = {std::max<int64_t>(1, std::thread::hardware_concurrency())};
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 20);
  std::vector<CLI::Option*> shape = {
      verb->add_option("--kernel", a->kernels, "Window sides [3,5,7,9,11,13; --quick: 3,7]")
          ->check(positive)
          ->delimiter(','),
      verb->add_option("--size", a->sizes, "Map side, or height,width [256]")
          ->expected(1, 2)
          ->check(positive)
          ->delimiter(','),
      verb->add_option("--dim", a->dim, "Features in and out [64]")->check(positive),
      verb->add_option("--heads", a->heads, "Attention heads [8]")->check(positive),
      verb->add_option("--queries", a->queries, "Learned queries [2]")->check(positive),
      verb->add_option("--stride", a->stride, "Stride of the windows [1]")->check(positive)};
  CLI::Option* batch =
      verb->add_option("--batch", a->batch, "Images [1; --models: 8]")->check(positive);
  verb->add_option("--threads", a->options.threads,
                   "Thread counts, one table line each [all cores]")
      ->check(positive)
      ->delimiter(',');
  verb->add_option("--pass", a->options.passes, "forward, train (forward and backward) [both]")
      ->check(CLI::IsMember({"forward", "train"}))
      ->delimiter(',');
  CLI::Option* peer =
      verb->add_option("--peer", a->options.peers, "composite, conv, gemm, or none [all]")
          ->check(CLI::IsMember({"composite", "conv", "gemm", "none"}))
          ->delimiter(',');
  CLI::Option* dtype =
      verb->add_option("--dtype", a->options.dtype, "float32, bfloat16 or float16 maps [float32]")
          ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  verb->add_option("--rounds", a->options.rounds,
                   "Interleaved rounds [7; --quick: 3; --study: 5, with --quick 2]")
      ->check(CLI::Range(1, 10000));
  CLI::Option* models = verb->add_flag("--models", a->models,
                                       "The layer shapes of the QnA-ViT models at 224 px instead");
  for (CLI::Option* option : shape) models->excludes(option);
  verb->add_flag("--quick", a->quick, "Fewer windows and rounds: ends in seconds");
  verb->add_option("--csv", a->csv, "Also write all measurements to this file");
  shape.insert(shape.end(), {batch, peer, dtype, models});
  add_study(*verb, a->study, shape);
  verb->footer(
      "Peers: composite is the paper's algorithm in ATen operators; conv a dense convolution with\n"
      "the same window; gemm the layer's two matrix products alone (the fastest of LibTorch's and\n"
      "our own). Extra memory is what LibTorch's allocator gave out beyond input, weights and\n"
      "output; for train, what is kept for the backward pass, in maps of the layer's size.\n\n"
      "Examples:\n"
      "  qna bench layer --kernel 7 --pass forward --threads 1,2\n"
      "  qna bench layer --size 56 --dim 128 --heads 16 --batch 8 --stride 2\n"
      "  qna bench layer --models --csv layers.csv\n"
      "  qna bench layer --study --csv study.csv --figures figures");
  verb->callback([a] { run_layer(*a); });
}

struct ModelArguments {
  std::vector<std::string> images;
  std::string csv;
  bench::ModelBenchOptions options;
};

void run_model(ModelArguments& a) {
  bench::ModelBenchOptions& options = a.options;
  if (options.models.empty()) {
    for (const models::ModelEntry& entry : models::models()) options.models.push_back(entry.name);
  }
  for (const std::string& name : options.models) models::find_model(name);
  for (const std::string& image : a.images) options.images.push_back(parse_size(image, "--image"));
  if (options.peers.empty() && options.train) options.peers = {"eager"};
  if (options.peers.empty()) {
    options.peers = {"eager", "compiled", "onnxruntime", "openvino", "timm"};
  }
  if (options.peers == std::vector<std::string>{"none"}) options.peers.clear();
  for (const std::string& peer : options.peers) {
    check(!options.train || peer == "eager" || peer == "compiled",
          "--peer must be eager or compiled with --train, got {}", peer);
  }
  check(std::count(options.peers.begin(), options.peers.end(), "none") == 0,
        "--peer none must stand alone");
  options.peers_folder = bench::default_peers_folder();
  options.program = std::filesystem::read_symlink("/proc/self/exe").string();
  if (!options.peers.empty()) set_up_peers(options.peers_folder);
  const std::vector<bench::ModelResult> results = bench::run_model_bench(options);
  fmt::print("{}, {} threads, commit {}\n\n{}", report::machine_description(), options.threads,
             bench::commit(), bench::model_table(results));
  if (!a.csv.empty()) {
    write_file(a.csv, bench::model_csv(results));
    fmt::print("\nwrote {}\n", a.csv);
  }
}

void add_model(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "model", "Images per second and memory of whole networks beside their peers, in one run");
  auto a = std::make_shared<ModelArguments>();
  a->options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 20);
  verb->add_option("--model", a->options.models, "Which models [all; see qna models]")
      ->delimiter(',');
  verb->add_option("--batch", a->options.batches, "Images that run together [1,8]")
      ->check(positive)
      ->delimiter(',');
  verb->add_option("--image", a->images, "Image sides, or HEIGHTxWIDTH [each model's own]")
      ->delimiter(',');
  verb->add_option("--threads", a->options.threads, "Threads [all cores]")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--peer", a->options.peers,
                   "eager, compiled, onnxruntime, openvino, timm, or none [all]")
      ->check(CLI::IsMember({"eager", "compiled", "onnxruntime", "openvino", "timm", "none"}))
      ->delimiter(',');
  verb->add_flag("--train", a->options.train,
                 "Steps of training instead of inference; peers: eager, compiled [eager]");
  verb->add_option("--rounds", a->options.rounds, "Turns of each subject [7]")
      ->check(CLI::Range(1, 10000));
  verb->add_option("--csv", a->csv, "Also write all measurements to this file");
  verb->footer(
      "The peers run the same network with the same weights by the paper's algorithm: PyTorch\n"
      "(eager, and compiled with freezing), ONNX Runtime and OpenVINO; their logits are checked.\n"
      "timm: other networks of about that size in PyTorch. Peers live in build/peers (1.5 GB), "
      "set\n"
      "up at the first run. Every subject is a process of its own, and they take turns.\n\n"
      "Examples:\n"
      "  qna bench model --model qna_vit_tiny --batch 8 --csv tiny.csv\n"
      "  qna bench model --train --model qna_vit_tiny --batch 8\n"
      "  qna bench model --peer none\n"
      "  qna bench model --peer none --model qna_vit_tiny --batch 1 --image 224,448,1536x2048");
  verb->callback([a] { run_model(*a); });
}

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
  fmt::print("{}, 1 thread, commit {}\n\n{}", report::machine_description(), bench::commit(),
             bench::loader_table(results));
  if (!a.csv.empty()) {
    write_file(a.csv, bench::loader_csv(results, a.options, report::machine_description(),
                                        bench::commit()));
    fmt::print("\nwrote {}\n", a.csv);
  }
}

void add_loader(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "loader", "Training pictures per second of one core beside timm's pipeline, in one run");
  auto a = std::make_shared<LoaderArguments>();
  verb->add_option("folder", a->options.folder, "Folder with JPEG or PNG pictures")
      ->required()
      ->check(CLI::ExistingDirectory);
  verb->add_option("--size", a->options.size, "Side of the result [224]")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--count", a->options.count, "Different pictures [256]")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb->add_option("--peer", a->peer, "timm or none [timm]")
      ->check(CLI::IsMember({"timm", "none"}));
  verb->add_option("--rounds", a->options.rounds, "Turns of each subject [7]")
      ->check(CLI::Range(1, 10000));
  verb->add_option("--csv", a->csv, "Also write all measurements to this file");
  verb->footer(
      "Both read a file, take a random part, resize it (bicubic), flip it, change it by\n"
      "RandAugment (rand-m9-mstd0.5-inc1) and normalise it; see docs/augmentation.md. The peer is\n"
      "timm's create_transform with torchvision and Pillow, in a process of its own.\n\n"
      "Example:\n"
      "  qna bench loader pictures/train --csv loader.csv");
  verb->callback([a] { run_loader(*a); });
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("bench", "Measure speed and memory");
  verb->require_subcommand(1);
  add_bench_detect(*verb);
  add_layer(*verb);
  add_loader(*verb);
  add_model(*verb);
  add_bench_upsample(*verb);
  add_bench_workers(*verb);
  add_study_worker(*verb);
}

}  // namespace qna::cli
