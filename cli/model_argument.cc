#include "cli/model_argument.h"

#include <charconv>
#include <filesystem>

#include "qna/base/error.h"
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
