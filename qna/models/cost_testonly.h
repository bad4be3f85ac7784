// Shared by tests: what a network costs, as built and as its configuration says.
#pragma once

#include "qna/config/cost.h"
#include "qna/models/qna_vit.h"

namespace qna::testing {

inline int64_t parameters_of(const models::QnAViT& model) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : model->parameters()) count += parameter.numel();
  return count;
}

inline config::Cost cost_of(const config::QnAViTConfig& config) {
  return config::total_cost(
      config::layer_costs(config, config.image_size[0], config.image_size[1]));
}

}  // namespace qna::testing
