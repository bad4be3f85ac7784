#include "cli/detector_argument.h"

#include <filesystem>

#include "qna/config/detectors.h"
#include "qna/format/toml.h"

namespace qna::cli {

std::optional<NamedDetector> open_if_detector(const std::string& argument) {
  for (const config::DetectorEntry& entry : config::detectors()) {
    if (argument == entry.name) return NamedDetector{entry.name, entry.config, {}, false};
  }
  const bool is_file = std::filesystem::is_regular_file(argument);
  if (!is_file) {
    // A name like theirs, but none: name the names.
    const bool like_a_name = argument.find_first_of("./") == std::string::npos;
    if (like_a_name && argument.starts_with("detr")) config::find_detector(argument);
    return std::nullopt;
  }
  if (argument.ends_with(".toml") || argument.ends_with(".json")) {
    if (!format::read_toml_or_json(argument).contains("backbone")) return std::nullopt;
    return NamedDetector{argument, config::read_detr_config(argument), {}, false};
  }
  if (engine::kind_of_file(argument) != engine::Kind::kDetector) return std::nullopt;
  const engine::ModelFile file = engine::ModelFile::open(argument);
  const std::string& name = file.info().name;
  return NamedDetector{name.empty() ? argument : name, std::get<config::DetrConfig>(file.config()),
                       file.info(), true};
}

}  // namespace qna::cli
