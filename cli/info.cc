#include <fmt/format.h>
#include <torch/types.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/measure.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/models/cost.h"

namespace qna::cli {
namespace {

struct Arguments {
  std::string model;
  std::string size;
  bool toml = false;
};

void print_costs(const std::vector<models::LayerCost>& costs) {
  const auto row = [](const std::string& name, const std::string& map, int64_t features,
                      int64_t parameters, double flops, const std::string& description) {
    fmt::print("{:<20} {:>9} {:>8} {:>12} {:>8.3f}  {}\n", name, map,
               features == 0 ? "" : std::to_string(features), with_commas(parameters), flops / 1e9,
               description);
  };
  fmt::print("{:<20} {:>9} {:>8} {:>12} {:>8}  {}\n", "layer", "map", "features", "parameters",
             "GFLOPs", "what it is");
  models::Cost stage;
  for (size_t i = 0; i < costs.size(); ++i) {
    const models::LayerCost& c = costs[i];
    row(c.name, fmt::format("{}x{}", c.map[0], c.map[1]), c.features, c.parameters, c.flops,
        c.description);
    stage.parameters += c.parameters;
    stage.flops += c.flops;
    if (i + 1 == costs.size() || costs[i + 1].stage != c.stage) {
      if (c.stage >= 0) {
        row(fmt::format("= stage {}", c.stage + 1), "", 0, stage.parameters, stage.flops, "");
      }
      stage = {};
    }
  }
  const models::Cost total = models::total_cost(costs);
  row("= all", "", 0, total.parameters, total.flops, "");
}

// Runs one image, which is the only honest way to know.
void print_memory(models::QnAViT& model, std::array<int64_t, 2> size) {
  const torch::InferenceMode inference;
  const torch::Tensor x = torch::zeros({1, size[0], size[1], model->config().in_channels});
  model->forward(x);  // packs the weights
  const int64_t before = bench::allocated_bytes();
  bench::reset_peak();
  model->forward(x);
  int64_t weights = 0;
  for (const auto& parameter : model->parameters()) weights += parameter.nbytes();
  fmt::print(
      "\nmemory: weights {:.1f} MB (and as much again packed for inference), maps while one "
      "image runs {:.1f} MB\n",
      static_cast<double>(weights) / 1e6,
      static_cast<double>(bench::peak_allocated_bytes() - before) / 1e6);
}

void run(const Arguments& a) {
  bench::count_allocations();
  NamedModel model = open_model(a.model);
  const models::QnAViTConfig& config = model.loaded.model->config();
  if (a.toml) {
    fmt::print("{}", models::to_toml(config));
    return;
  }
  const std::array<int64_t, 2> size =
      a.size.empty() ? config.image_size : parse_size(a.size, "--size");
  check(size[0] * size[1] <= int64_t{1} << 26,
        "--size must have at most 2^26 pixels, since the network is run once, got {} x {}", size[0],
        size[1]);
  fmt::print("{}, one image of {} x {} pixels, {} classes{}\n\n", model.name, size[0], size[1],
             config.classes, model.has_weights ? "" : " (no weights: a model by its name)");
  print_costs(models::layer_costs(config, size[0], size[1]));
  print_memory(model.loaded.model, size);
  if (model.has_weights) {
    const checkpoint::ModelInfo& info = model.loaded.info;
    fmt::print("preprocessing: {}\n", data::to_json(info.preprocess).dump());
    if (!info.labels.empty()) {
      fmt::print("labels: {}, {} ... {}\n", info.labels.size(), info.labels.front(),
                 info.labels.back());
    }
    if (!info.training.is_null()) fmt::print("training: {}\n", info.training.dump());
  }
}

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("info", "Layers, parameters, FLOPs and memory of a model");
  auto a = std::make_shared<Arguments>();
  verb->add_option("model", a->model, "Name of a model, a configuration (.toml, .json) or a file")
      ->required()
      ->type_name("MODEL|FILE");
  verb->add_option("--size", a->size, "Image side, or HEIGHTxWIDTH [the model's own]");
  verb->add_flag("--toml", a->toml, "Print the configuration instead, as a file to start from");
  verb->footer(
      "FLOPs: 2 per multiply-add of products, attention and window sums, and element-wise work.\n\n"
      "Examples:\n"
      "  qna info qna_vit_tiny\n"
      "  qna info qna_vit_base --size 384x512\n"
      "  qna info qna_vit_nano --toml > mine.toml && qna info mine.toml");
  verb->callback([a] { run(*a); });
}

}  // namespace qna::cli
