// TOML files, as the JSON they mean.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace qna::format {

// Throws qna::Error that begins with `origin` and names the line.
nlohmann::json parse_toml(const std::string& text, const std::string& origin);

// A TOML or JSON file, by its ending.
nlohmann::json read_toml_or_json(const std::string& path);

// Tables as [sections], lists of tables as [[sections]], all else as key = value. Nothing may be
// null.
std::string to_toml(const nlohmann::json& object);

}  // namespace qna::format
