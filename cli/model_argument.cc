#include "cli/model_argument.h"

#include <charconv>
#include <filesystem>
#include <fstream>

#include "qna/base/error.h"
#include "qna/format/text.h"
#include "qna/models/registry.h"

namespace qna::cli {

NamedModel open_model(const std::string& argument) {
  for (const models::ModelEntry& entry : models::models()) {
    if (argument != entry.name) continue;
    NamedModel model;
    model.loaded.model = models::QnAViT(entry.config);
    model.loaded.model->eval();
    model.name = entry.name;
    return model;
  }
  if (argument.ends_with(".toml") || argument.ends_with(".json")) {
    NamedModel model;
    model.loaded.model = models::QnAViT(models::read_config(argument));
    model.loaded.model->eval();
    model.name = argument;
    return model;
  }
  // Neither a known name nor the look of a file: name the names.
  if (argument.find_first_of("./") == std::string::npos && !std::filesystem::exists(argument)) {
    models::find_model(argument);
  }
  NamedModel model;
  model.loaded = checkpoint::load_model(argument);
  model.name = model.loaded.info.name.empty() ? argument : model.loaded.info.name;
  model.has_weights = true;
  return model;
}

checkpoint::LoadedModel open_weights(const std::string& path) {
  checkpoint::LoadedModel loaded = checkpoint::load_model(path);
  for (const std::string& line : loaded.report) fmt::print(stderr, "qna: {}\n", line);
  return loaded;
}

std::string default_weights() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  // As built, and as installed.
  for (const char* folder : {"share/qna", "../share/qna"}) {
    const auto path = program.parent_path() / folder / "imagenette.safetensors";
    if (std::filesystem::exists(path)) return path.lexically_normal().string();
  }
  fail(
      "the weights that come with the program are not beside it (share/qna/{}); name a weights "
      "file before the pictures",
      "imagenette.safetensors");
}

std::string take_weights(std::vector<std::string>& arguments) {
  if (arguments.empty() || !arguments.front().ends_with(".safetensors")) return default_weights();
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

at::ScalarType scalar_type(const std::string& name) {
  if (name == "float16") return at::kHalf;
  return name == "bfloat16" ? at::kBFloat16 : at::kFloat;
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

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t i = static_cast<int64_t>(text.size()) - 3; i > 0; i -= 3) text.insert(i, ",");
  return text;
}

}  // namespace qna::cli
