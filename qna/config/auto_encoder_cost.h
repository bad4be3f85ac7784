// What an auto-encoder costs, counted from its configuration.
#pragma once

#include "qna/config/auto_encoder.h"
#include "qna/config/cost.h"

namespace qna::config {

// As layer_costs of cost.h counts, for one image.
std::vector<LayerCost> layer_costs(const AutoEncoderConfig& config, int64_t height, int64_t width);

}  // namespace qna::config
