// A network whose weights do not matter: for what it costs to run, and for tests.
#pragma once

#include "qna/engine/model_file.h"

namespace qna::engine {

// The bytes of a weights file with small random numbers. The same seed gives the same ones.
std::string random_model_bytes(const NetworkConfig& config, const ModelInfo& info,
                               uint32_t seed = 1);

}  // namespace qna::engine
