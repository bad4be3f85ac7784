// One step of training as the benchmark times it: forward, cross entropy, backward, AdamW.
#pragma once

#include <torch/types.h>

#include "qna/models/qna_vit.h"
#include "qna/train/adamw.h"

namespace qna::bench {

// The same step as the peer `eager-train` makes: learning rate 1e-4, weight decay 0.05 on all
// parameters, by the trainer's AdamW.
class TrainStep {
 public:
  explicit TrainStep(models::QnAViT model);
  // images [B, H, W, C]; image i has class i modulo the number of classes.
  void run(const torch::Tensor& images);

 private:
  models::QnAViT model_;
  train::AdamW optimizer_;
};

}  // namespace qna::bench
