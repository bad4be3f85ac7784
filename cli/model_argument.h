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

// The weights that come with the program: a small classifier, see weights/README.md.
std::string default_weights();

// FILE IMAGE... or IMAGE...: takes the weights file, if the first one is one, off the front of
// `arguments` and returns it, or else the default.
std::string take_weights(std::vector<std::string>& arguments);

// One label per line, in UTF-8.
std::vector<std::string> read_labels(const std::string& path);

// "float32", "float16", "bfloat16"
std::vector<std::string> dtype_names();
at::ScalarType scalar_type(const std::string& name);

// "224" or "224x320": height and width.
std::array<int64_t, 2> parse_size(const std::string& text, const char* option);

std::string with_commas(int64_t number);  // 15,715,560

}  // namespace qna::cli
