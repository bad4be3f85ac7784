#include <algorithm>
#include <cmath>

#include "qna/base/error.h"
#include "qna/predict/classify.h"
#include "qna/predict/evaluate.h"

namespace qna::predict {
namespace {

// log of the softmax at one place
double log_probability(std::span<const float> logits, int64_t label) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  return logits[label] - highest - std::log(sum);
}

}  // namespace

Evaluation evaluate_classifier(const engine::Model& model, data::Loader& loader,
                               engine::Context& context, const EvaluationRun& run) {
  check_has_classes(model);
  const auto classes = static_cast<size_t>(model.classes());
  check(loader.classes() == model.classes(),
        "evaluation: the data must have the {} classes of the model, got {}", classes,
        loader.classes());
  Evaluation result;
  std::array<double, 4> sums = {};  // images, loss, top 1, top 5
  std::vector<double> confusion(classes * classes);
  std::vector<float> logits;
  loader.start(0);
  int64_t done = 0;
  while (std::optional<data::Batch> batch = loader.next()) {
    logits.resize(batch->count * classes);
    if (batch->count > 0) {
      model.classify({.batch = batch->count,
                      .height = batch->height,
                      .width = batch->width,
                      .pixels = batch->pixels.data()},
                     logits.data(), context);
    }
    for (int64_t i = 0; i < batch->count; ++i) {
      const int64_t label = batch->labels[i];
      if (label < 0) continue;  // a broken image
      const std::span<const float> row(logits.data() + i * classes, classes);
      const std::vector<ClassProbability> best = softmax(row).top(5);
      const int64_t predicted = best[0].label;
      sums[0] += 1;
      sums[1] -= log_probability(row, label);
      sums[2] += predicted == label;
      sums[3] += std::any_of(best.begin(), best.end(),
                             [&](const ClassProbability& each) { return each.label == label; });
      confusion[label * classes + predicted] += 1;
      result.predictions.push_back({batch->images[i], label, predicted, best[0].probability});
    }
    loader.recycle(std::move(*batch));
    run.tell(++done, loader.batches());
  }
  run.sum(sums);
  run.sum(confusion);
  check(sums[0] > 0, "evaluation: none of the pictures could be read");
  result.images = static_cast<int64_t>(sums[0]);
  result.loss = sums[1] / sums[0];
  result.top1 = 100 * sums[2] / sums[0];
  result.top5 = 100 * sums[3] / sums[0];
  result.confusion.assign(confusion.begin(), confusion.end());
  return result;
}

}  // namespace qna::predict
