// What a detector costs, counted from its configuration.
#pragma once

#include "qna/config/cost.h"
#include "qna/config/detr.h"

namespace qna::config {

// As layer_costs of cost.h counts, for one image; frozen BatchNorm is part of its convolution and
// has no parameters.
std::vector<LayerCost> layer_costs(const ResNetConfig& config, int64_t height, int64_t width);
std::vector<LayerCost> layer_costs(const DetrConfig& config, int64_t height, int64_t width);

}  // namespace qna::config
