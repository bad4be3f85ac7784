#include "qna/kinds/explore.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "qna/base/error.h"
#include "qna/image/color.h"
#include "qna/kinds/run_report.h"
#include "qna/predict/attention.h"
#include "qna/predict/classify.h"
#include "qna/predict/detect.h"
#include "qna/predict/input.h"

namespace qna::kinds {
namespace {

report::ExplorerWindows explored(const engine::WindowScores& from) {
  const kernels::WindowShape& s = from.shape;
  return {.queries = s.queries,
          .kernel = {s.kernel_h, s.kernel_w},
          .stride = {s.stride_h, s.stride_w},
          .padding = {s.pad_top, s.pad_left},
          .dilation = {s.dilation_h, s.dilation_w},
          .windows = {s.out_height(), s.out_width()},
          .scores = from.scores,
          .bias = from.bias,
          .scale = from.scale};
}

report::ExplorerTokens explored(const engine::TokenScores& from) {
  return {.window = from.window,
          .table = from.table,
          .dim = from.dim,
          .queries = from.queries,
          .keys = from.keys,
          .bias = from.bias};
}

// A network whose training went wrong has nothing to show.
void check_finite(const std::vector<float>& numbers, const std::string& layer) {
  const bool good =
      std::ranges::all_of(numbers, [](float number) { return std::isfinite(number); });
  check(good, "explorer: the scores of {} must be finite, and are not", layer);
}

report::ExplorerLayer explored(const engine::LayerAttention& from) {
  for (const auto* numbers :
       {&from.window_scores.scores, &from.token_scores.queries, &from.token_scores.keys}) {
    check_finite(*numbers, from.layer.name);
  }
  report::ExplorerLayer layer{.name = from.layer.name,
                              .stride = from.layer.stride,
                              .height = from.maps.height,
                              .width = from.maps.width,
                              .heads = from.layer.heads,
                              .attention = {}};
  if (from.layer.learned_queries) {
    layer.attention = explored(from.window_scores);
  } else {
    layer.attention = explored(from.token_scores);
  }
  return layer;
}

void add_layers(report::Explorer& explorer, const engine::Model& model, const predict::Input& input,
                const ExploreOptions& options, engine::Context& context) {
  predict::AttentionOptions wanted{.layers = options.layers, .scores = true};
  if (wanted.layers.empty()) {
    for (const engine::AttentionLayer& layer : model.attention_layers()) {
      wanted.layers.push_back(layer.name);
    }
  }
  for (const engine::LayerAttention& attention :
       predict::attention_of(model, input.images(), wanted, context)) {
    explorer.layers.push_back(explored(attention));
  }
}

void add_classes(report::Explorer& explorer, const engine::Model& model,
                 const predict::Input& input, engine::Context& context) {
  if (model.classes() == 0) return;
  constexpr int64_t kShown = 5;
  const predict::Classes classes = predict::classify(model, input.images(), context).front();
  for (const predict::ClassProbability& each : classes.top(kShown)) {
    explorer.classes.emplace_back(predict::class_name(each.label, model.info().labels),
                                  each.probability);
  }
}

void add_boxes(report::Explorer& explorer, const engine::Model& model, const image::Image& seen,
               double threshold, engine::Context& context) {
  config::Preprocess preprocess = model.info().preprocess;
  preprocess.resize = preprocess.longest = 0;  // it has its size
  preprocess.crop = {0, 0};
  const predict::FoundObjects all = predict::find_objects(model, seen, preprocess, {.sorted = true},
                                                          context, /*with_attention=*/true);
  report::ExplorerDecoder& decoder = explorer.decoder.emplace_back();
  decoder.stride = model.detector().backbone_stride();
  const auto height = static_cast<double>(seen.height), width = static_cast<double>(seen.width);
  size_t count = 0;
  while (count < all.found.size() && all.found[count].score >= threshold) ++count;
  if (count == 0) {  // an uncertain one says more than an empty page
    count = std::min<size_t>(all.found.size(), 3);
    explorer.notes.push_back(fmt::format(
        "No object has a score of {:.0f} % or more; these are the surest.", 100 * threshold));
  }
  for (size_t i = 0; i < count; ++i) {
    const predict::Detection& found = all.found[i];
    decoder.height = all.attention[i].height;
    decoder.width = all.attention[i].width;
    decoder.boxes.push_back({.name = predict::class_name(found.label, model.info().labels),
                             .score = found.score,
                             .box = {found.box[0] / width, found.box[1] / height,
                                     found.box[2] / width, found.box[3] / height},
                             .attention = all.attention[i].values});
  }
}

}  // namespace

void check_explorable(const engine::Model& model) {
  check(model.kind() != engine::Kind::kAutoEncoder,
        "{}: it holds an auto-encoder, and the explorer shows classifiers and detectors; see qna "
        "reconstruct",
        model.origin());
}

report::Explorer explore(const engine::Model& model, const std::string& name,
                         const image::Image& shown, const image::Image& seen,
                         const ExploreOptions& options, engine::Context& context) {
  check_explorable(model);
  report::Explorer explorer{
      .name = name, .image = image::to_channels(shown, 3), .seen = {seen.height, seen.width}};
  const predict::Input input(seen, model.info().preprocess);
  add_layers(explorer, model, input, options, context);
  if (model.kind() == engine::Kind::kDetector) {
    add_boxes(explorer, model, seen, options.threshold, context);
  } else {
    add_classes(explorer, model, input, context);
  }
  explorer.notes.push_back(fmt::format(
      "{} saw {} x {} pixels (height x width).",
      model.info().name.empty() ? "The network" : model.info().name, seen.height, seen.width));
  return explorer;
}

void add_explorer(report::TrainingReport& report, const engine::Model& model,
                  const std::string& name, const image::Image& shown, const image::Image& seen,
                  engine::Context& context) {
  if (report.explorer) return;
  ExploreOptions options;
  for (const engine::AttentionLayer& layer : engine::typical_attention_layers(model)) {
    options.layers.push_back(layer.name);
  }
  const bool detects = model.kind() == engine::Kind::kDetector;
  if (options.layers.empty() && !detects) return;
  try {
    report.explorer = explore(model, name, shown, seen, options, context);
  } catch (const Error& error) {  // such as numbers that are not finite: a report is still wanted
    report.notes.push_back(fmt::format("nothing to look around in: {}", error.what()));
  }
}

}  // namespace qna::kinds
