// One step of a detector's training as the benchmark times it: forward, matching and losses of all
// decoder blocks, backward, clipping, AdamW.
#pragma once

#include <torch/types.h>

#include <vector>

#include "qna/models/detr.h"
#include "qna/tasks/set_loss.h"
#include "qna/train/adamw.h"

namespace qna::bench {

// The same step as the peer `detr-train` makes, with DETR's settings: learning rate 1e-4, a tenth
// of it for the backbone, weight decay 1e-4, gradients clipped to 0.1, and a ResNet's first stage
// frozen.
class DetectStep {
 public:
  // Random objects for a batch of so many images.
  DetectStep(models::Detr model, int64_t batch);
  void run(const torch::Tensor& images);  // [B, H, W, 3]

 private:
  models::Detr model_;
  std::vector<tasks::BoxTargets> targets_;
  train::AdamW optimizer_;
};

}  // namespace qna::bench
