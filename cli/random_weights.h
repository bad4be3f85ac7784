// A network whose weights do not matter.
#pragma once

#include "qna/engine/model.h"

namespace qna::cli {

// With small random numbers. For what a network costs to run, which its configuration decides.
engine::Model random_model(const config::NetworkConfig& config,
                           const engine::ModelOptions& options = {});

}  // namespace qna::cli
