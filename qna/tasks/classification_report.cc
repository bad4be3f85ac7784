// What the report of a run shows of a classifier.
#include <torch/types.h>

#include <algorithm>

#include "qna/image/color.h"
#include "qna/tasks/attention_sheets.h"
#include "qna/tasks/classification.h"
#include "qna/tasks/picture_tensor.h"

namespace qna::tasks {
namespace {

using Prediction = Evaluation::Prediction;

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

}  // namespace

void Classification::add_to_report(report::TrainingReport& report) {
  const std::vector<std::string>& classes = labels_;
  report.confusion.classes = classes;
  const torch::Tensor counts = last_.confusion.contiguous();
  const int64_t* data = counts.data_ptr<int64_t>();
  report.confusion.counts.assign(data, data + counts.numel());

  constexpr size_t kSamples = 24;
  constexpr size_t kAttention = 4;
  const torch::InferenceMode inference;
  const std::vector<Prediction> chosen = choose_samples(last_.predictions, kSamples);
  std::vector<std::string> layers;
  for (const models::AttentionLayer& layer : models::typical_attention_layers(model_)) {
    layers.push_back(layer.name);
  }
  const size_t every = std::max<size_t>(1, chosen.size() / kAttention);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Prediction& p = chosen[i];
    const image::Image seen =
        data::fit(val_set_->read(p.picture, options_.preprocess.channels()), options_.preprocess);
    const image::Image photo = image::to_channels(seen, 3);
    report.samples.push_back({.picture = photo,
                              .truth = classes[p.label],
                              .predicted = classes[p.predicted],
                              .confidence = p.confidence,
                              .right = p.label == p.predicted});
    if (i % every != 0 || layers.empty()) continue;
    const torch::Tensor x = picture_tensor(seen, options_.preprocess);
    // The last layer with learned queries: near enough to the end to show what matters.
    const auto found = std::find_if(layers.rbegin(), layers.rend(), [&](const std::string& name) {
      return models::find_attention_layer(model_, name).learned_queries;
    });
    const std::string layer = found == layers.rend() ? layers.back() : *found;
    for (const models::LayerAttention& attention :
         models::attention_of(model_, x, {.layers = {layer}})) {
      report.attention.push_back(
          {attention_sheet(photo, classes[p.label], attention, {.cell = 160}),
           classes[p.label] + ", " + layer});
    }
  }
}

}  // namespace qna::tasks
