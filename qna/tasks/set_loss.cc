#include "qna/tasks/set_loss.h"
#include <torch/utils.h>

#include <algorithm>

#include "qna/base/error.h"
#include "qna/base/text.h"
#include "qna/tasks/assignment.h"
#include "qna/tasks/boxes.h"

namespace qna::tasks {
namespace {

using torch::Tensor;

void check_targets(const std::vector<BoxTargets>& targets, int64_t batch, int64_t classes) {
  check(static_cast<int64_t>(targets.size()) == batch,
        "set_loss: there must be targets for each of the {} images, got {}", batch, targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    const Tensor& labels = targets[i].labels;
    const Tensor& boxes = targets[i].boxes;
    check(labels.defined() && labels.dim() == 1 && labels.scalar_type() == torch::kLong,
          "set_loss: the labels of image {} must be int64 [objects]", i);
    check(boxes.defined() && boxes.dim() == 2 && boxes.size(0) == labels.size(0) &&
              boxes.size(1) == 4,
          "set_loss: the boxes of image {} must be [{}, 4], got {}", i, labels.size(0),
          boxes.defined() ? in_brackets(boxes.sizes()) : "an undefined tensor");
    if (labels.numel() == 0) continue;
    const int64_t least = labels.min().item<int64_t>();
    const int64_t most = labels.max().item<int64_t>();
    check(least >= 0 && most < classes,
          "set_loss: the labels of image {} must be from 0 to {}, as the model has {} classes, got "
          "{}",
          i, classes - 1, classes, least < 0 ? least : most);
    check(boxes.isfinite().all().item<bool>() && (boxes.narrow(1, 2, 2) >= 0).all().item<bool>(),
          "set_loss: the boxes of image {} must be finite, with widths and heights of at least 0",
          i);
  }
}

void check_predictions(const Tensor& logits, const Tensor& boxes, int64_t dimensions) {
  check(logits.dim() == dimensions && boxes.dim() == dimensions && logits.size(-1) >= 2 &&
            boxes.size(-1) == 4 &&
            logits.sizes().slice(0, dimensions - 1) == boxes.sizes().slice(0, dimensions - 1),
        "set_loss: logits and boxes must be [{}batch, queries, classes + 1] and [..., 4], got {} "
        "and {}",
        dimensions == 4 ? "blocks, " : "", in_brackets(logits.sizes()), in_brackets(boxes.sizes()));
}

// The costs of all pairs of one image: [queries, objects].
Tensor pair_costs(const Tensor& probabilities, const Tensor& boxes, const BoxTargets& target,
                  const SetLossOptions& options) {
  const Tensor target_boxes = target.boxes.to(boxes.scalar_type());
  const Tensor classes = -probabilities.index_select(1, target.labels);
  const Tensor distance = torch::cdist(boxes, target_boxes, 1);
  const Tensor giou = -generalized_iou(corners_of(boxes).unsqueeze(1), corners_of(target_boxes));
  return options.class_cost * classes + options.box_cost * distance + options.giou_cost * giou;
}

std::vector<Match> match_checked(const Tensor& logits, const Tensor& boxes,
                                 const std::vector<BoxTargets>& targets,
                                 const SetLossOptions& options) {
  const torch::NoGradGuard no_grad;
  const Tensor probabilities = logits.detach().to(torch::kFloat).softmax(-1);
  const Tensor places = boxes.detach().to(torch::kFloat);
  std::vector<Match> matches;
  for (size_t i = 0; i < targets.size(); ++i) {
    const Tensor costs = pair_costs(probabilities[i], places[i], targets[i], options)
                             .to(torch::kCPU, torch::kDouble)
                             .contiguous();
    check(costs.isfinite().all().item<bool>(),
          "set_loss: the predictions for image {} are not finite: training has diverged", i);
    const std::vector<int64_t> object_of =
        assign({costs.const_data_ptr<double>(), static_cast<size_t>(costs.numel())}, costs.size(0),
               costs.size(1));
    std::vector<int64_t> predictions, objects;
    for (size_t query = 0; query < object_of.size(); ++query) {
      if (object_of[query] < 0) continue;
      predictions.push_back(static_cast<int64_t>(query));
      objects.push_back(object_of[query]);
    }
    matches.push_back({torch::tensor(predictions, torch::kLong).to(logits.device()),
                       torch::tensor(objects, torch::kLong).to(logits.device())});
  }
  return matches;
}

// What all images' pairs are, in one row.
struct Pairs {
  Tensor image, prediction;  // [n] int64
  Tensor labels;             // [n]
  Tensor boxes;              // [n, 4]
};

Pairs collect(const std::vector<Match>& matches, const std::vector<BoxTargets>& targets) {
  std::vector<Tensor> image, prediction, labels, boxes;
  for (size_t i = 0; i < matches.size(); ++i) {
    const Match& m = matches[i];
    image.push_back(torch::full_like(m.predictions, static_cast<int64_t>(i)));
    prediction.push_back(m.predictions);
    labels.push_back(targets[i].labels.index_select(0, m.targets));
    boxes.push_back(targets[i].boxes.index_select(0, m.targets));
  }
  return {torch::cat(image), torch::cat(prediction), torch::cat(labels), torch::cat(boxes)};
}

SetLossTerms block_terms(const Tensor& logits, const Tensor& boxes, const Pairs& pairs,
                         const Tensor& objects_per_image, const SetLossOptions& options,
                         const SetLossScale& scale) {
  const int64_t no_object = logits.size(-1) - 1;
  SetLossTerms terms;

  Tensor classes = torch::full({logits.size(0), logits.size(1)}, no_object,
                               logits.options().dtype(torch::kLong));
  classes.index_put_({pairs.image, pairs.prediction}, pairs.labels);
  Tensor weight = torch::ones({logits.size(-1)}, logits.options());
  weight[no_object] = options.no_object;
  terms.classes =
      at::cross_entropy_loss(logits.flatten(0, 1), classes.flatten(), weight, at::Reduction::Sum) /
      scale.predictions;

  const double objects = std::max(scale.objects, 1.0);
  const Tensor matched = boxes.index({pairs.image, pairs.prediction});
  const Tensor wanted = pairs.boxes.to(boxes.scalar_type());
  terms.boxes = (matched - wanted).abs().sum() / objects;
  terms.giou = (1 - generalized_iou(corners_of(matched), corners_of(wanted))).sum() / objects;

  const Tensor found = (logits.detach().argmax(-1) != no_object).sum(1);
  terms.cardinality_error =
      (found - objects_per_image).abs().to(torch::kDouble).mean().item<double>();
  return terms;
}

double class_error_of(const Tensor& logits, const Pairs& pairs) {
  if (pairs.labels.numel() == 0) return 0;
  const Tensor said = logits.detach().index({pairs.image, pairs.prediction}).argmax(-1);
  return 100 * (said != pairs.labels).to(torch::kDouble).mean().item<double>();
}

}  // namespace

std::vector<Match> match(const Tensor& logits, const Tensor& boxes,
                         const std::vector<BoxTargets>& targets, const SetLossOptions& options) {
  check_predictions(logits, boxes, 3);
  check_targets(targets, logits.size(0), logits.size(2) - 1);
  return match_checked(logits, boxes, targets, options);
}

SetLossScale set_loss_scale(const std::vector<BoxTargets>& targets, int64_t queries,
                            const SetLossOptions& options) {
  SetLossScale scale;
  for (const BoxTargets& target : targets) {
    const int64_t objects = target.labels.numel();
    const auto matched = static_cast<double>(std::min(objects, queries));
    scale.objects += static_cast<double>(objects);
    scale.predictions += matched + options.no_object * (static_cast<double>(queries) - matched);
  }
  return scale;
}

SetLoss set_loss(const Tensor& logits, const Tensor& boxes, const std::vector<BoxTargets>& targets,
                 const SetLossOptions& options, const std::optional<SetLossScale>& scale) {
  check_predictions(logits, boxes, 4);
  check(logits.size(0) >= 1 && logits.size(1) >= 1,
        "set_loss: there must be at least one block and one image, got {}",
        in_brackets(logits.sizes()));
  check_targets(targets, logits.size(1), logits.size(3) - 1);
  const SetLossScale divisors =
      scale.has_value() ? *scale : set_loss_scale(targets, logits.size(2), options);
  std::vector<int64_t> objects;
  for (const BoxTargets& target : targets) objects.push_back(target.labels.numel());
  const Tensor objects_per_image = torch::tensor(objects, torch::kLong).to(logits.device());

  SetLoss loss;
  for (int64_t i = 0; i < logits.size(0); ++i) {
    loss.matches = match_checked(logits[i], boxes[i], targets, options);
    const Pairs pairs = collect(loss.matches, targets);
    const SetLossTerms& terms = loss.terms.emplace_back(
        block_terms(logits[i], boxes[i], pairs, objects_per_image, options, divisors));
    const Tensor weighted = options.class_weight * terms.classes +
                            options.box_weight * terms.boxes + options.giou_weight * terms.giou;
    loss.total = i == 0 ? weighted : loss.total + weighted;
    if (i + 1 == logits.size(0)) loss.class_error = class_error_of(logits[i], pairs);
  }
  return loss;
}

}  // namespace qna::tasks
