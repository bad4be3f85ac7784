#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/model_argument.h"
#include "cli/random_weights.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/base/text.h"
#include "qna/kinds/kind.h"

namespace qna::cli {
namespace {

struct InfoArguments {
  std::string model;
  std::string weight_type;
  std::string size;
  bool toml = false;
};

void print_costs(const std::vector<config::LayerCost>& costs) {
  size_t width = 20;
  for (const config::LayerCost& c : costs) width = std::max(width, c.name.size());
  const auto row = [&](const std::string& name, const std::string& map, int64_t features,
                       int64_t parameters, double flops, const std::string& description) {
    fmt::print("{:<{}} {:>9} {:>8} {:>12} {:>8.3f}  {}\n", name, width, map,
               features == 0 ? "" : std::to_string(features), with_commas(parameters), flops / 1e9,
               description);
  };
  fmt::print("{:<{}} {:>9} {:>8} {:>12} {:>8}  {}\n", "layer", width, "map", "features",
             "parameters", "GFLOPs", "what it is");
  config::Cost stage;
  for (size_t i = 0; i < costs.size(); ++i) {
    const config::LayerCost& c = costs[i];
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
  const config::Cost total = config::total_cost(costs);
  row("= all", "", 0, total.parameters, total.flops, "");
}

// Runs one image, which is the only honest way to know.
void print_memory(const engine::Model& model, std::array<int64_t, 2> size) {
  const auto [height, width] = size;
  const std::vector<float> x(static_cast<size_t>(height * width * model.channels()));
  const engine::Images images{.height = height, .width = width, .pixels = x.data()};
  engine::Context context;
  kinds::row_of(model.kind()).run(model, images, context);
  fmt::print(
      "\nmemory: packed weights {:.1f} MB, maps while one image runs {:.1f} MB ({} thread{})\n",
      static_cast<double>(model.bytes()) / 1e6, static_cast<double>(context.bytes()) / 1e6,
      context.threads(), context.threads() == 1 ? "" : "s");
}

void print_file_info(const engine::ModelInfo& info) {
  fmt::print("preprocessing: {}\n", config::to_json(info.preprocess).dump());
  if (!info.labels.empty()) {
    fmt::print("labels: {}, {} ... {}\n", info.labels.size(), info.labels.front(),
               info.labels.back());
  }
  if (!info.category_ids.empty()) {
    fmt::print("category ids: {} ... {}\n", info.category_ids.front(), info.category_ids.back());
  }
  if (!info.training.is_null()) fmt::print("training: {}\n", info.training.dump());
}

void run_info(const InfoArguments& a) {
  const NamedNetwork network = open_network(a.model);
  if (a.toml) {
    fmt::print("{}", config::to_toml(network.config));
    return;
  }
  const bool cut = network.has_weights && network.info.preprocess.crop[0] > 0;
  const std::array<int64_t, 2> own =
      cut && config::kind_of(network.config) != config::Kind::kClassifier
          ? network.info.preprocess.crop
          : config::usual_size(network.config);
  const std::array<int64_t, 2> size = a.size.empty() ? own : parse_size(a.size, "--size");
  check(size[0] * size[1] <= int64_t{1} << 26,
        "--size must have at most 2^26 pixels, since the network is run once, got {} x {}", size[0],
        size[1]);
  const int64_t classes = config::classes_of(network.config);
  fmt::print("{}, {}, one image of {} x {} pixels{}{}\n", network.name,
             config::describe(config::kind_of(network.config)), size[0], size[1],
             classes > 0 ? fmt::format(", {} classes", classes) : "",
             network.has_weights ? "" : " (no file: random weights)");
  for (const std::string& line :
       kinds::row_of(config::kind_of(network.config)).remarks(network.config))
    fmt::print("{}\n", line);
  fmt::print("\n");
  print_costs(config::layer_costs(network.config, size[0], size[1]));
  const engine::ModelOptions options = model_options(a.weight_type);
  print_memory(network.has_weights ? engine::Model::open(a.model, options)
                                   : random_model(network.config, options),
               size);
  if (network.has_weights) print_file_info(network.info);
}

}  // namespace

void add_info(Command program) {
  Command verb = program.verb("info", "Layers, parameters, FLOPs and memory of a network");
  auto a = std::make_shared<InfoArguments>();
  verb.option("model", a->model,
              "Name of a model or detector, a configuration (.toml, .json) or a weights\n"
              "file of any kind")
      .required()
      .type_name("MODEL|FILE");
  verb.option("--size", a->size,
              "Image side, or HEIGHTxWIDTH [the model's or file's own; detectors:\n800x1066, "
              "auto-encoders: 64]");
  verb.flag("--toml", a->toml, "Print the configuration instead, as a file to start from");
  add_weight_type(verb, a->weight_type);
  verb.footer(
      "FLOPs: 2 per multiply-add of products, attention and window sums, and element-wise work.\n\n"
      "Examples:\n"
      "  qna info qna_vit_tiny\n"
      "  qna info qna_vit_base --size 384x512\n"
      "  qna info detr_qna_tiny\n"
      "  qna info qna_vit_nano --toml > mine.toml && qna info mine.toml");
  verb.callback([a] { run_info(*a); });
}

}  // namespace qna::cli
