#include "cli/model_argument.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "qna/base/error.h"
#include "qna/base/text.h"
#include "qna/config/detectors.h"
#include "qna/config/registry.h"
#include "qna/format/text.h"

namespace qna::cli {

NamedNetwork open_network(const std::string& argument) {
  for (const config::ModelEntry& entry : config::models()) {
    if (argument == entry.name) return {entry.name, entry.config, {}, false};
  }
  for (const config::DetectorEntry& entry : config::detectors()) {
    if (argument == entry.name) return {entry.name, entry.config, {}, false};
  }
  if (argument.ends_with(".toml") || argument.ends_with(".json")) {
    return {argument, config::read_network(argument), {}, false};
  }
  // Neither a known name nor the look of a file: name the names.
  if (argument.find_first_of("./") == std::string::npos && !std::filesystem::exists(argument)) {
    if (argument.starts_with("det")) config::find_detector(argument);
    config::find_model(argument);
  }
  const engine::ModelFile file = engine::ModelFile::open(argument);
  const std::string& name = file.info().name;
  return {name.empty() ? argument : name, file.config(), file.info(), true};
}

// A file or folder that comes with the program; empty: it is not there.
static std::string bundled(const std::string& name) {
  std::error_code none;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none);
  // As built, and as installed.
  for (const char* folder : {"share/qna", "../share/qna"}) {
    const auto path = program.parent_path() / folder / name;
    if (std::filesystem::exists(path, none)) return path.lexically_normal().string();
  }
  return "";
}

std::string default_weights(config::Kind kind) {
  check(kind != config::Kind::kAutoEncoder,
        "there are no weights for {} that come with the program", config::describe(kind));
  const std::string name = fmt::format("{}.safetensors", config::name_of(kind));
  const std::string path = bundled(name);
  check(!path.empty(),
        "the weights that come with the program are not beside it (share/qna/{}); name a weights "
        "file before the pictures",
        name);
  return path;
}

std::vector<NamedRecipe> recipes_in(const std::string& folder) {
  std::vector<NamedRecipe> recipes;
  std::error_code error;
  std::filesystem::directory_iterator walk(folder, error);
  for (; !error && walk != std::filesystem::directory_iterator(); walk.increment(error)) {
    if (walk->path().extension() != ".toml") continue;
    recipes.push_back({walk->path().stem().string(), walk->path().string()});
  }
  std::ranges::sort(recipes, {}, &NamedRecipe::name);
  return recipes;
}

std::vector<NamedRecipe> bundled_recipes() { return recipes_in(bundled("recipes")); }
std::vector<NamedRecipe> bundled_sweeps() { return recipes_in(bundled("recipes/sweeps")); }

// A file, or one of those that come with the program; who: what lists them.
static std::string find_named(const std::string& argument, const std::vector<NamedRecipe>& known,
                              const char* kind, const char* who) {
  const std::filesystem::path path(argument);
  std::error_code error;
  if (path.has_extension() || path.has_parent_path()) return argument;
  std::vector<std::string> names;
  for (const NamedRecipe& recipe : known) {
    if (recipe.name == argument) return recipe.path;
    names.push_back(recipe.name);
  }
  if (std::filesystem::exists(argument + ".toml", error)) return argument + ".toml";
  fail("there is no {} '{}'{} '{}' lists them", kind, argument,
       did_you_mean(argument, names).empty() ? ";" : did_you_mean(argument, names), who);
}

std::string find_recipe(const std::string& argument) {
  return find_named(argument, bundled_recipes(), "recipe", "qna recipes");
}

std::string find_sweep(const std::string& argument) {
  return find_named(argument, bundled_sweeps(), "sweep", "qna sweep --list");
}

void add_pictures(Command& verb, std::vector<std::string>& arguments, config::Kind kind,
                  bool standard_input) {
  const char* const from =
      standard_input ? "Pictures, folders of them (JPEG, PNG, WebP), or - for standard input;"
                     : "Pictures, or folders of them (JPEG, PNG, WebP);";
  verb.option("images", arguments,
              fmt::format("{} before\nthem a weights file (.safetensors) [the small {} that comes "
                          "with\nthe program]",
                          from, config::name_of(kind)))
      .required()
      .type_name("[FILE] IMAGE");
}

std::string take_weights(std::vector<std::string>& arguments, config::Kind kind) {
  if (arguments.empty()) return default_weights(kind);
  const std::vector<std::string> inside = format::safetensors_in(arguments.front());
  check(inside.empty(), "{}: this folder holds weights, not pictures; name the file: {}",
        arguments.front(), fmt::join(inside, ", "));
  if (!arguments.front().ends_with(".safetensors")) return default_weights(kind);
  const std::string file = arguments.front();
  arguments.erase(arguments.begin());
  check(!arguments.empty(), "no pictures are given behind the weights file {}", file);
  return file;
}

std::vector<std::string> read_labels(const std::string& path) {
  std::ifstream file(path);
  check(file.good(), "--labels: {} cannot be read", path);
  std::vector<std::string> labels;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    check(format::is_utf8(line), "--labels: line {} of {} is not UTF-8", labels.size() + 1, path);
    labels.push_back(line);
  }
  return labels;
}

std::vector<std::string> dtype_names() { return {"float32", "float16", "bfloat16"}; }

format::DType dtype_of(const std::string& name) {
  if (name == "float16") return format::DType::kF16;
  return name == "bfloat16" ? format::DType::kBF16 : format::DType::kF32;
}

void add_weight_type(Command& verb, std::string& weight_type) {
  verb.option("--weight-type", weight_type,
              "How weights are kept in memory: float32, or bfloat16, half the size and rounded\n"
              "to 8 bits; of 3,925 pictures 9 then got another class [float32]")
      .one_of({"float32", "bfloat16"});
}

void add_engine_options(Command& verb, int& threads, std::string& weight_type) {
  verb.option("--threads", threads, "Threads that compute, and that read pictures [one per core]")
      .range(1, 1024);
  add_weight_type(verb, weight_type);
}

engine::ModelOptions model_options(const std::string& weight_type) {
  return {.weight_type = weight_type == "bfloat16" ? engine::WeightType::kBFloat16
                                                   : engine::WeightType::kFloat32};
}

std::array<int64_t, 2> parse_size(const std::string& text, const char* option) {
  const size_t cross = text.find('x');
  const auto number = [&](const std::string& part) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    check(error == std::errc() && end == part.data() + part.size() && value >= 1 &&
              value <= (1 << 16),
          "{} must be a side or HEIGHTxWIDTH, from 1 to 65536 pixels, got '{}'", option, text);
    return value;
  };
  if (cross == std::string::npos) return {number(text), number(text)};
  return {number(text.substr(0, cross)), number(text.substr(cross + 1))};
}

}  // namespace qna::cli
