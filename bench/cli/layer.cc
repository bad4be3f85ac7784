#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "bench/cli/study.h"
#include "bench/cli/verbs.h"
#include "bench/layer.h"
#include "qna/base/error.h"
#include "qna/base/file.h"

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

}  // namespace

void add_bench_layer(Command program) {
  Command verb =
      program.verb("layer", "Time and memory of one QnA layer beside its peers, in the same run");
  auto a = std::make_shared<LayerArguments>();
  a->options.rounds = 0;  // 7, or 3 with --quick
  a->options.threads = {std::max<int64_t>(1, std::thread::hardware_concurrency())};
  constexpr int kMost = 1 << 20;
  std::vector<Option> shape = {
      verb.option("--kernel", a->kernels, "Window sides [3,5,7,9,11,13; --quick: 3,7]")
          .range(1, kMost)
          .comma_separated(),
      verb.option("--size", a->sizes, "Map side, or height,width [256]")
          .values(1, 2)
          .range(1, kMost)
          .comma_separated(),
      verb.option("--dim", a->dim, "Features in and out [64]").range(1, kMost),
      verb.option("--heads", a->heads, "Attention heads [8]").range(1, kMost),
      verb.option("--queries", a->queries, "Learned queries [2]").range(1, kMost),
      verb.option("--stride", a->stride, "Stride of the windows [1]").range(1, kMost)};
  Option batch = verb.option("--batch", a->batch, "Images [1; --models: 8]").range(1, kMost);
  verb.option("--threads", a->options.threads, "Thread counts, one table line each [all cores]")
      .range(1, kMost)
      .comma_separated();
  verb.option("--pass", a->options.passes, "forward, train (forward and backward) [both]")
      .one_of({"forward", "train"})
      .comma_separated();
  Option peer = verb.option("--peer", a->options.peers, "composite, conv, gemm, or none [all]")
                    .one_of({"composite", "conv", "gemm", "none"})
                    .comma_separated();
  Option dtype =
      verb.option("--dtype", a->options.dtype, "float32, bfloat16 or float16 maps [float32]")
          .one_of({"float32", "bfloat16", "float16"});
  verb.option("--rounds", a->options.rounds,
              "Interleaved rounds [7; --quick: 3; --study: 5, with --quick 2]")
      .range(1, 10000);
  Option models =
      verb.flag("--models", a->models, "The layer shapes of the QnA-ViT models at 224 px instead");
  for (Option option : shape) models.excludes(option);
  verb.flag("--quick", a->quick, "Fewer windows and rounds: ends in seconds");
  verb.option("--csv", a->csv, "Also write all measurements to this file");
  shape.insert(shape.end(), {batch, peer, dtype, models});
  add_study(verb, a->study, shape);
  verb.footer(
      "Peers: composite is the paper's algorithm in ATen operators; conv a dense convolution with\n"
      "the same window; gemm the layer's matrix products alone (forward the fastest of LibTorch's "
      "and\n"
      "our own). Extra memory is what LibTorch's allocator gave out beyond input, weights and\n"
      "output; for train, what is kept for the backward pass, in maps of the layer's size.\n\n"
      "Examples:\n"
      "  qna bench layer --kernel 7 --pass forward --threads 1,2\n"
      "  qna bench layer --size 56 --dim 128 --heads 16 --batch 8 --stride 2\n"
      "  qna bench layer --models --csv layers.csv\n"
      "  qna bench layer --study --csv study.csv --figures figures");
  verb.callback([a] { run_layer(*a); });
}

}  // namespace qna::cli
