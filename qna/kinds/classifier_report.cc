// What the report of a run shows of a classifier.
#include <fmt/format.h>

#include <algorithm>

#include "qna/image/color.h"
#include "qna/kinds/run_report.h"
#include "qna/predict/attention.h"
#include "qna/predict/attention_sheets.h"
#include "qna/predict/input.h"

namespace qna::kinds {
namespace {

using Prediction = predict::Evaluation::Prediction;

// Half of them wrong ones, the surest first, half of them right ones, spread over the set.
std::vector<Prediction> choose_samples(const std::vector<Prediction>& all, size_t count) {
  std::vector<Prediction> wrong, right;
  for (const Prediction& p : all) (p.label == p.predicted ? right : wrong).push_back(p);
  std::stable_sort(wrong.begin(), wrong.end(), [](const Prediction& a, const Prediction& b) {
    return a.confidence > b.confidence;
  });
  wrong.resize(std::min(wrong.size(), count / 2));
  const size_t rest = std::min(right.size(), count - wrong.size());
  for (size_t i = 0; i < rest; ++i) wrong.push_back(right[i * right.size() / rest]);
  return wrong;
}

// The last layer with learned queries: near enough to the end to show what matters. Empty: none
// attends.
std::string layer_to_show(const engine::Model& model) {
  std::string name;
  bool learned = false;
  for (const engine::AttentionLayer& layer : engine::typical_attention_layers(model)) {
    if (learned && !layer.learned_queries) continue;
    learned = layer.learned_queries;
    name = layer.name;
  }
  return name;
}

// "cat.jpg" of a path, also of one inside an archive.
std::string file_name(const std::string& path) { return path.substr(path.find_last_of("/:") + 1); }

}  // namespace

void add_to_report(report::TrainingReport& report, const engine::Model& model,
                   const predict::Evaluation& last, const data::Dataset& val,
                   engine::Context& context) {
  const std::vector<std::string>& classes = model.info().labels;
  const config::Preprocess& preprocess = model.info().preprocess;
  report.confusion.classes = classes;
  report.confusion.counts = last.confusion;

  constexpr size_t kSamples = 24;
  constexpr size_t kAttention = 4;
  const std::string layer = layer_to_show(model);
  const std::vector<Prediction> chosen = choose_samples(last.predictions, kSamples);
  const size_t every = std::max<size_t>(1, chosen.size() / kAttention);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Prediction& p = chosen[i];
    const image::Image seen = data::fit(val.read(p.image, preprocess.channels()), preprocess);
    const image::Image image = image::to_channels(seen, 3);
    report.samples.push_back({.image = image,
                              .truth = classes[p.label],
                              .predicted = classes[p.predicted],
                              .confidence = p.confidence,
                              .right = p.label == p.predicted,
                              .name = file_name(val.name(p.image))});
    // The last one is right if any is: it shows what the model has learned.
    if (i + 1 == chosen.size()) {
      add_explorer(report, model, file_name(val.name(p.image)), image, seen, context);
    }
    if (i % every != 0 || layer.empty()) continue;
    const predict::Input input(seen, preprocess);
    for (const engine::LayerAttention& attention :
         predict::attention_of(model, input.images(), {.layers = {layer}}, context)) {
      const std::string name = file_name(val.name(p.image));
      const std::string says =
          fmt::format("{}, {:.0f} %", classes[p.predicted], 100 * p.confidence);
      report.attention.push_back(
          {predict::attention_sheet(image, name, attention, {.cell = 160, .says = says}),
           fmt::format("{}: {}; the model says {}; {}", name, classes[p.label], says, layer)});
    }
  }
}

}  // namespace qna::kinds
