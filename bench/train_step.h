// One step of training as the benchmark times it: forward, cross entropy, backward, AdamW.
#pragma once

#include <torch/types.h>

#include <vector>

#include "qna/models/qna_vit.h"

namespace qna::bench {

// The same step as the peer `eager-train` makes: learning rate 1e-4, weight decay 0.05 on all
// parameters, LibTorch's fused AdamW.
class TrainStep {
 public:
  explicit TrainStep(models::QnAViT model);
  // images [B, H, W, C]; image i has class i modulo the number of classes.
  void run(const torch::Tensor& images);

 private:
  models::QnAViT model_;
  std::vector<torch::Tensor> parameters_, means_, squares_, steps_;
};

}  // namespace qna::bench
