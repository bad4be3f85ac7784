#include "cli/detector_argument.h"

#include <filesystem>

#include "qna/format/toml.h"
#include "qna/models/detectors.h"

namespace qna::cli {
namespace {

NamedDetector make(const models::DetrConfig& config, const std::string& name) {
  NamedDetector detector;
  detector.loaded.model = models::Detr(config);
  detector.loaded.model->eval();
  detector.name = name;
  return detector;
}

}  // namespace

std::optional<NamedDetector> open_if_detector(const std::string& argument) {
  for (const models::DetectorEntry& entry : models::detectors()) {
    if (argument == entry.name) return make(entry.config, entry.name);
  }
  const bool is_file = std::filesystem::is_regular_file(argument);
  if (!is_file) {
    // A name like theirs, but none: name the names.
    const bool like_a_name = argument.find_first_of("./") == std::string::npos;
    if (like_a_name && argument.starts_with("detr")) models::find_detector(argument);
    return std::nullopt;
  }
  if (argument.ends_with(".toml") || argument.ends_with(".json")) {
    if (!format::read_toml_or_json(argument).contains("backbone")) return std::nullopt;
    return make(models::read_detr_config(argument), argument);
  }
  if (!checkpoint::is_detector_file(argument)) return std::nullopt;
  NamedDetector detector;
  detector.loaded = checkpoint::load_detector(argument);
  const std::string& name = detector.loaded.info.name;
  detector.name = name.empty() ? argument : name;
  detector.has_weights = true;
  return detector;
}

}  // namespace qna::cli
