// How good a set of predictions is, by DETR: each object is given to one prediction, such that the
// whole is cheapest, and all other predictions shall say "no object".
#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

#include "qna/recipe/detection_options.h"

namespace qna::tasks {

// The objects of one image.
struct BoxTargets {
  torch::Tensor labels;  // [n] int64, from 0
  torch::Tensor boxes;   // [n, 4]: centre x, centre y, width, height as parts of the image
};

// Which prediction has which object: two lists of indices of the same length.
struct Match {
  torch::Tensor predictions;  // [n] int64, ascending
  torch::Tensor targets;      // [n] int64
};

// One match per image, exact and not differentiable. logits [B, queries, classes + 1] and boxes
// [B, queries, 4] are those of one decoder block. With more objects than queries, the dearest
// objects get none.
std::vector<Match> match(const torch::Tensor& logits, const torch::Tensor& boxes,
                         const std::vector<BoxTargets>& targets,
                         const SetLossOptions& options = {});

// What the sums over the predictions of a batch are divided by. Both are themselves sums over
// images: added up over the parts of a batch or over processes, and given to set_loss, they make
// the loss of the whole the sum of the losses of its parts.
struct SetLossScale {
  double objects = 0;      // of L1 and generalised IoU; counts as at least 1
  double predictions = 0;  // of the cross entropy: each weighs 1 or `no_object`
};
SetLossScale set_loss_scale(const std::vector<BoxTargets>& targets, int64_t queries,
                            const SetLossOptions& options = {});

// Of one decoder block, before weighting.
struct SetLossTerms {
  torch::Tensor classes;  // cross entropy
  torch::Tensor boxes;    // L1 of centre and size
  torch::Tensor giou;     // 1 - generalised IoU
  // How far the number of predictions that are not "no object" is from the number of objects; a
  // mean over the images, for people, without a gradient.
  double cardinality_error = 0;
};

struct SetLoss {
  torch::Tensor total;              // weighted, over all blocks
  std::vector<SetLossTerms> terms;  // per block, the last one last
  std::vector<Match> matches;       // of the last block
  double class_error = 0;  // percent of the objects whose prediction names another class; 0 without
                           // any; of the last block
};

// logits [blocks, B, queries, classes + 1] and boxes [blocks, B, queries, 4], as models::DetrOutput
// has them; every block is matched for itself. scale: nothing for that of these targets.
SetLoss set_loss(const torch::Tensor& logits, const torch::Tensor& boxes,
                 const std::vector<BoxTargets>& targets, const SetLossOptions& options = {},
                 const std::optional<SetLossScale>& scale = std::nullopt);

}  // namespace qna::tasks
