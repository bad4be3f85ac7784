#include "qna/tasks/detections.h"

#include <torch/utils.h>

#include "qna/base/error.h"
#include "qna/ops/geometry.h"
#include "qna/tasks/boxes.h"

namespace qna::tasks {

std::vector<Detections> detections(const torch::Tensor& logits, const torch::Tensor& boxes,
                                   const std::vector<std::array<int64_t, 2>>& sizes,
                                   const DetectionOptions& options) {
  check(logits.dim() == 3 && boxes.dim() == 3 && logits.size(2) >= 2 && boxes.size(2) == 4 &&
            logits.size(0) == boxes.size(0) && logits.size(1) == boxes.size(1),
        "detections: logits and boxes must be [batch, queries, classes + 1] and [..., 4], got {} "
        "and {}",
        ops::sizes_text(logits.sizes()), ops::sizes_text(boxes.sizes()));
  check(static_cast<int64_t>(sizes.size()) == logits.size(0),
        "detections: there must be a size for each of the {} images, got {}", logits.size(0),
        sizes.size());
  const torch::NoGradGuard no_grad;
  check(
      logits.isfinite().all().item<bool>() && boxes.isfinite().all().item<bool>(),
      "detections: the predictions are not finite; are the weights those of a run that diverged?");
  const torch::Tensor objects = logits.softmax(-1).narrow(2, 0, logits.size(2) - 1);
  const auto [scores, labels] = objects.max(-1);
  const torch::Tensor corners = corners_of(boxes);
  std::vector<Detections> result;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto height = static_cast<double>(sizes[i][0]), width = static_cast<double>(sizes[i][1]);
    const torch::Tensor pixels = torch::tensor({width, height, width, height}, boxes.options());
    const auto n = static_cast<int64_t>(i);
    Detections found{scores[n], labels[n], corners[n] * pixels, torch::arange(labels.size(1))};
    const auto keep = [&](const torch::Tensor& indices) {
      found = {found.scores.index_select(0, indices), found.labels.index_select(0, indices),
               found.boxes.index_select(0, indices), found.queries.index_select(0, indices)};
    };
    if (options.threshold > 0) keep((found.scores >= options.threshold).nonzero().squeeze(1));
    if (options.sorted) keep(found.scores.argsort(/*stable=*/true, 0, /*descending=*/true));
    result.push_back(found);
  }
  return result;
}

}  // namespace qna::tasks
