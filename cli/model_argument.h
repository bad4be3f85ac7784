// MODEL|FILE on the command line, and what else many verbs are given.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cli/command.h"
#include "qna/engine/model.h"

namespace qna::cli {

// A recipe as it is named on the command line: a file, or the name of one of those that come with
// the program. Returns the file.
std::string find_recipe(const std::string& argument);

struct NamedRecipe {
  std::string name;  // "imagenette"
  std::string path;
};
// Those that come with the program, by name.
std::vector<NamedRecipe> bundled_recipes();
// The files (.toml) of a folder, by name.
std::vector<NamedRecipe> recipes_in(const std::string& folder);

// The same for sweeps of recipes.
std::string find_sweep(const std::string& argument);
std::vector<NamedRecipe> bundled_sweeps();

// A network of any kind: by its name in the lists of models and detectors, a configuration (.toml,
// .json) or a weights file, in that order. The first two have no weights, and `info` is as it is
// without a file.
struct NamedNetwork {
  std::string name;
  config::NetworkConfig config;
  engine::ModelInfo info;
  bool has_weights = false;
};
NamedNetwork open_network(const std::string& argument);

// The weights that come with the program: a small classifier or a small detector, see
// weights/README.md.
std::string default_weights(config::Kind kind);

// The argument [FILE] IMAGE...; kind: of the network that is used where no file is named.
void add_pictures(Command& verb, std::vector<std::string>& arguments, config::Kind kind,
                  bool standard_input = false);
// Takes the weights file, if the first one is one, off the front of `arguments` and returns it, or
// else the default.
std::string take_weights(std::vector<std::string>& arguments, config::Kind kind);

// One label per line, in UTF-8.
std::vector<std::string> read_labels(const std::string& path);

// "float32", "float16", "bfloat16"
std::vector<std::string> dtype_names();
format::DType dtype_of(const std::string& name);

// --weight-type of the verbs that run a network, and what it says; with it --threads, unless a verb
// has its own.
void add_weight_type(Command& verb, std::string& weight_type);
void add_engine_options(Command& verb, int& threads, std::string& weight_type);
engine::ModelOptions model_options(const std::string& weight_type);

// "224" or "224x320": height and width.
std::array<int64_t, 2> parse_size(const std::string& text, const char* option);

}  // namespace qna::cli
