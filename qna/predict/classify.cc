#include "qna/predict/classify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qna/base/error.h"
#include "qna/predict/input.h"

namespace qna::predict {

std::vector<ClassProbability> Classes::top(int64_t count) const {
  std::vector<int64_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), 0);
  count = std::clamp<int64_t>(count, 0, static_cast<int64_t>(order.size()));
  // What is no number counts as least, since it has no place in an order.
  const auto rank = [&](int64_t label) {
    return std::isnan(probabilities[label]) ? -1.0f : probabilities[label];
  };
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int64_t a, int64_t b) {
    return rank(a) != rank(b) ? rank(a) > rank(b) : a < b;
  });
  std::vector<ClassProbability> best;
  for (int64_t i = 0; i < count; ++i) best.push_back({order[i], probabilities[order[i]]});
  return best;
}

Classes softmax(std::span<const float> logits) {
  Classes classes;
  if (logits.empty()) return classes;
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  for (const float logit : logits) {
    classes.probabilities.push_back(static_cast<float>(std::exp(logit - highest) / sum));
  }
  return classes;
}

std::string class_name(int64_t label, const std::vector<std::string>& labels) {
  return labels.empty() ? fmt::format("class {}", label) : labels[label];
}

std::string say(const Classes& classes, const std::vector<std::string>& labels) {
  const ClassProbability best = classes.top(1).front();
  return fmt::format("{}, {:.0f} %", class_name(best.label, labels), 100 * best.probability);
}

void check_has_classes(const engine::Model& model) {
  check(model.classifier().classes > 0, "{}: this model has no classes to predict", model.origin());
}

Classes classify(const engine::Model& model, const image::Image& image, engine::Context& context) {
  check_has_classes(model);
  const config::Preprocess& preprocess = model.info().preprocess;
  const Input input(data::fit(image, preprocess), preprocess);
  return classify(model, input.images(), context).front();
}

std::vector<Classes> classify(const engine::Model& model, const engine::Images& images,
                              engine::Context& context) {
  check_has_classes(model);
  const auto classes = static_cast<size_t>(model.classes());
  std::vector<float> logits(images.batch * classes);
  model.classify(images, logits.data(), context);
  std::vector<Classes> result;
  for (int64_t i = 0; i < images.batch; ++i) {
    result.push_back(softmax({logits.data() + i * classes, classes}));
  }
  return result;
}

}  // namespace qna::predict
