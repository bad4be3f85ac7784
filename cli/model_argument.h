// MODEL|FILE on the command line.
#pragma once

#include <array>
#include <string>

#include "qna/checkpoint/model_file.h"

namespace qna::cli {

// A model by its name in the registry, a configuration (.toml, .json) or a weights file, in that
// order. `has_weights` is false for the first two: the weights are random.
struct NamedModel {
  checkpoint::LoadedModel loaded;
  std::string name;
  bool has_weights = false;
};
NamedModel open_model(const std::string& argument);

// A weights file; says on stderr what was resized.
checkpoint::LoadedModel open_weights(const std::string& path);

// "224" or "224x320": height and width.
std::array<int64_t, 2> parse_size(const std::string& text, const char* option);

std::string with_commas(int64_t number);  // 15,715,560

}  // namespace qna::cli
