#include <fmt/format.h>
#include <torch/types.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>

#include "bench/measure.h"
#include "cli/detector_argument.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/checkpoint/auto_encoder_file.h"
#include "qna/models/cost.h"
#include "qna/models/detr_cost.h"

namespace qna::cli {
namespace {

struct Arguments {
  std::string model;
  std::string size;
  bool toml = false;
};

void print_costs(const std::vector<models::LayerCost>& costs) {
  size_t width = 20;
  for (const models::LayerCost& c : costs) width = std::max(width, c.name.size());
  const auto row = [&](const std::string& name, const std::string& map, int64_t features,
                       int64_t parameters, double flops, const std::string& description) {
    fmt::print("{:<{}} {:>9} {:>8} {:>12} {:>8.3f}  {}\n", name, width, map,
               features == 0 ? "" : std::to_string(features), with_commas(parameters), flops / 1e9,
               description);
  };
  fmt::print("{:<{}} {:>9} {:>8} {:>12} {:>8}  {}\n", "layer", width, "map", "features",
             "parameters", "GFLOPs", "what it is");
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

// Runs one image, which is the only honest way to know. packed: what is said of packed weights.
void print_memory(const torch::nn::Module& model, const char* packed,
                  const std::function<void()>& run_image) {
  const torch::InferenceMode inference;
  run_image();  // packs the weights
  const int64_t before = bench::allocated_bytes();
  bench::reset_peak();
  run_image();
  int64_t weights = 0;
  for (const auto& parameter : model.parameters()) weights += parameter.nbytes();
  fmt::print("\nmemory: weights {:.1f} MB{}, maps while one image runs {:.1f} MB\n",
             static_cast<double>(weights) / 1e6, packed,
             static_cast<double>(bench::peak_allocated_bytes() - before) / 1e6);
}

// Of the files of classifiers and of detectors.
template <typename Info>
void print_file_info(const Info& info) {
  fmt::print("preprocessing: {}\n", data::to_json(info.preprocess).dump());
  if (!info.labels.empty()) {
    fmt::print("labels: {}, {} ... {}\n", info.labels.size(), info.labels.front(),
               info.labels.back());
  }
  if (!info.training.is_null()) fmt::print("training: {}\n", info.training.dump());
}

std::array<int64_t, 2> size_or(const Arguments& a, std::array<int64_t, 2> own) {
  const std::array<int64_t, 2> size = a.size.empty() ? own : parse_size(a.size, "--size");
  check(size[0] * size[1] <= int64_t{1} << 26,
        "--size must have at most 2^26 pixels, since the network is run once, got {} x {}", size[0],
        size[1]);
  return size;
}

std::string describe_backbone(const models::DetrConfig& c) {
  std::string name = "QnA-ViT";
  if (const auto* resnet = std::get_if<models::ResNetConfig>(&c.backbone)) {
    name = fmt::format("ResNet-{}{}", resnet->depth, resnet->dilation ? ", dilated" : "");
  }
  return fmt::format("{}, {} features for every {} x {} pixels", name, c.backbone_features(),
                     c.backbone_stride(), c.backbone_stride());
}

std::string describe_transformer(const models::DetrConfig& c) {
  std::string text =
      fmt::format("{} features, {} heads, {} encoder and {} decoder blocks, {} object queries",
                  c.hidden, c.heads, c.encoder_blocks, c.decoder_blocks, c.queries);
  if (c.qna.blocks > 0) {
    text += fmt::format("; {} QnA blocks in the place of {} encoder blocks", c.qna.blocks,
                        c.qna.replaces);
  }
  return text;
}

void run_detector(const Arguments& a, NamedDetector& detector) {
  models::Detr& model = detector.loaded.model;
  const models::DetrConfig& config = model->config();
  if (a.toml) {
    fmt::print("{}", models::to_toml(config));
    return;
  }
  const auto [height, width] = size_or(a, kDetectorSize);
  fmt::print("{}, a detector, one image of {} x {} pixels, {} classes{}\n", detector.name, height,
             width, config.classes, detector.has_weights ? "" : " (no file: random weights)");
  fmt::print("backbone: {}\ntransformer: {}\n\n", describe_backbone(config),
             describe_transformer(config));
  print_costs(models::layer_costs(config, height, width));
  const torch::Tensor x = torch::zeros({1, height, width, 3});
  print_memory(*model, "", [&] { model->forward(x); });
  if (detector.has_weights) {
    const checkpoint::DetectorInfo& info = detector.loaded.info;
    print_file_info(info);
    if (!info.category_ids.empty()) {
      fmt::print("category ids: {} ... {}\n", info.category_ids.front(), info.category_ids.back());
    }
  }
}

void run_classifier(const Arguments& a) {
  NamedModel named = open_model(a.model);
  models::QnAViT& model = named.loaded.model;
  const models::QnAViTConfig& config = model->config();
  if (a.toml) {
    fmt::print("{}", models::to_toml(config));
    return;
  }
  const auto [height, width] = size_or(a, config.image_size);
  fmt::print("{}, one image of {} x {} pixels, {} classes{}\n\n", named.name, height, width,
             config.classes, named.has_weights ? "" : " (no file: random weights)");
  print_costs(models::layer_costs(config, height, width));
  const torch::Tensor x = torch::zeros({1, height, width, config.in_channels});
  print_memory(*model, " (and as much again packed for inference)", [&] { model->forward(x); });
  if (named.has_weights) print_file_info(named.loaded.info);
}

void run_auto_encoder(const Arguments& a) {
  check(!a.toml, "--toml: an auto-encoder is configured in a recipe, as recipes/faces_qna.toml");
  checkpoint::LoadedAutoEncoder loaded = checkpoint::load_auto_encoder(a.model);
  const models::AutoEncoderConfig& config = loaded.model->config();
  const auto [height, width] = size_or(a, loaded.info.preprocess.crop);
  fmt::print("{}, an auto-encoder, one image of {} x {} pixels\n{} parameters\n{}\n", a.model,
             height, width, with_commas(models::parameter_count(config)),
             models::to_json(config).dump());
  const torch::Tensor x = torch::zeros({1, height, width, config.channels});
  print_memory(*loaded.model, "", [&] { loaded.model->forward(x); });
  fmt::print("preprocessing: {}\n", data::to_json(loaded.info.preprocess).dump());
  if (!loaded.info.training.is_null()) fmt::print("training: {}\n", loaded.info.training.dump());
}

void run(const Arguments& a) {
  bench::count_allocations();
  if (a.model.ends_with(".safetensors") && checkpoint::is_auto_encoder_file(a.model)) {
    return run_auto_encoder(a);
  }
  if (std::optional<NamedDetector> detector = open_if_detector(a.model)) {
    run_detector(a, *detector);
  } else {
    run_classifier(a);
  }
}

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("info", "Layers, parameters, FLOPs and memory of a model or detector");
  auto a = std::make_shared<Arguments>();
  verb->add_option("model", a->model,
                   "Name of a model or detector, a configuration (.toml, .json) or a file")
      ->required()
      ->type_name("MODEL|FILE");
  verb->add_option("--size", a->size,
                   "Image side, or HEIGHTxWIDTH [the model's own; detectors: 800x1066]");
  verb->add_flag("--toml", a->toml, "Print the configuration instead, as a file to start from");
  verb->footer(
      "FLOPs: 2 per multiply-add of products, attention and window sums, and element-wise work.\n\n"
      "Examples:\n"
      "  qna info qna_vit_tiny\n"
      "  qna info qna_vit_base --size 384x512\n"
      "  qna info detr_qna_tiny\n"
      "  qna info qna_vit_nano --toml > mine.toml && qna info mine.toml");
  verb->callback([a] { run(*a); });
}

}  // namespace qna::cli
