// The LayerNorm of all networks here.
#pragma once

#include <torch/nn/modules/normalization.h>

#include "qna/config/layers.h"

namespace qna::nn {

inline constexpr double kNormEpsilon = config::kBlockNormEpsilon;

inline torch::nn::LayerNorm layer_norm(int64_t features) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({features}).eps(kNormEpsilon));
}

}  // namespace qna::nn
