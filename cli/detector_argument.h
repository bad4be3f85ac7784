// DETECTOR|FILE on the command line.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "qna/engine/model_file.h"

namespace qna::cli {

// The size whose cost is told where none is given: COCO's pictures as DETR sees them.
inline constexpr std::array<int64_t, 2> kDetectorSize = {800, 1066};

// As NamedModel.
struct NamedDetector {
  std::string name;
  config::DetrConfig config;
  engine::ModelInfo info;
  bool has_weights = false;
};

// A detector by its name in the list, by a configuration (.toml, .json, with the key `backbone`) or
// by a weights file. Nothing where the argument is something else.
std::optional<NamedDetector> open_if_detector(const std::string& argument);

}  // namespace qna::cli
